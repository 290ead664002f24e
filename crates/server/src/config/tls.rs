//! The certificate of a listener, and the authorities for client certificates.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spile_listener::{Tls, TlsFiles};

use super::source::{Faults, Location};
use super::value::table;

/// `[http.tls]`, `[admin.tls]` and so on.
#[expect(clippy::struct_field_names, reason = "these are the keys")]
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsSpec {
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    client_ca_file: Option<PathBuf>,
}

/// The TLS part of a listener's table.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HasTls {
    #[serde(deserialize_with = "table")]
    pub(super) tls: Option<TlsSpec>,
}

/// The files of one listener. They existed and belonged together when they were read.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Their paths.
    pub files: TlsFiles,
    pub(crate) tls: Tls,
}

impl TlsConfig {
    /// Reads the files of the table at `at`. Relative paths start from the folder of the configuration file.
    pub(super) fn load(
        spec: Option<TlsSpec>,
        at: &Location<'_>,
        protocols: &'static [&str],
        folder: &Path,
        faults: &mut Faults,
    ) -> Option<Self> {
        let spec = spec?;
        let at = at.key("tls");
        let chain = faults.required(&at, "certificate_file", spec.certificate_file);
        let key = faults.required(&at, "key_file", spec.key_file);
        let files = TlsFiles {
            certificate_file: folder.join(chain?),
            key_file: folder.join(key?),
            client_ca_file: spec.client_ca_file.map(|path| folder.join(path)),
        };
        match Tls::from_files(files.clone(), protocols) {
            Ok(tls) => Some(Self { files, tls }),
            Err(why) => {
                let fix = "a chain in PEM, the key that belongs to it in `key_file`, and in `client_ca_file` who \
                           vouches for clients, if they must show a certificate";
                faults.add(&at.key("certificate_file"), why, fix);
                None
            }
        }
    }
}

impl From<&TlsConfig> for TlsSpec {
    fn from(TlsConfig { files, .. }: &TlsConfig) -> Self {
        let TlsFiles { certificate_file, key_file, client_ca_file } = files.clone();
        Self { certificate_file: Some(certificate_file), key_file: Some(key_file), client_ca_file }
    }
}
