//! The certificate that clients of a listener see, and who vouches for theirs.

use std::fmt;
use std::path::Path;

use spile_listener::{Tls, TlsFiles};

use super::file::{Faults, TlsFile};
use super::quoted::Quoted;

/// The files of one listener. They were there and belonged together when they were read.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Where they are.
    pub files: TlsFiles,
    pub(crate) tls: Tls,
}

impl TlsConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn check(
        file: Option<TlsFile>,
        protocols: &'static [&str],
        folder: &Path,
        faults: &mut Faults,
    ) -> Option<Self> {
        let file = file?;
        let (chain, key) = (file.certificate?, file.key?);
        let files = TlsFiles {
            certificate_file: folder.join(chain.value),
            key_file: folder.join(key.value),
            client_ca_file: file.client_ca.map(|path| folder.join(path.value)),
        };
        match Tls::from_files(files.clone(), protocols) {
            Ok(tls) => Some(Self { files, tls }),
            Err(why) => {
                let fix = "a chain in PEM, the key that belongs to it in `key_file`, and in `client_ca_file` who \
                           vouches for clients, if they must show a certificate";
                faults.add(&chain.place, why, fix);
                None
            }
        }
    }

    /// As a file would have it, in the table of this name.
    pub(super) fn show(&self, table: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TlsFiles { certificate_file, key_file, client_ca_file } = &self.files;
        writeln!(f, "[{table}.tls]\ncertificate_file = {}", Quoted(certificate_file.display()))?;
        writeln!(f, "key_file = {}", Quoted(key_file.display()))?;
        if let Some(authorities) = client_ca_file {
            writeln!(f, "client_ca_file = {}", Quoted(authorities.display()))?;
        }
        writeln!(f)
    }
}
