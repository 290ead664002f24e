//! Settings of the admin API: its token, and where changes are stored.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::secret;
use super::source::{Faults, Location};
use super::tls::TlsConfig;
use super::{Config, StoreUrl};
use crate::secret::Secret;

/// `[admin]`: the token of the admin API, and where changes are stored.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// The admin API is closed if there is no token.
    #[serde(skip)]
    pub(crate) token: Option<Secret>,
    pub(crate) token_file: Option<PathBuf>,
    /// The file that stores changes. If it is `None`, they are stored beside `store.path`; without a path, they last as long as the
    /// process.
    pub(crate) registry_file: Option<PathBuf>,
    /// The certificate that clients see; plain HTTP if `None`.
    #[serde(skip)]
    pub tls: Option<TlsConfig>,
}

impl AdminConfig {
    /// Reads the token. Relative paths start from the folder of the configuration file.
    pub(super) fn finish(
        mut self,
        at: &Location<'_>,
        store: &StoreUrl,
        variables: &[(String, String)],
        folder: &Path,
        faults: &mut Faults,
    ) -> Self {
        let (file, at_file) = (self.token_file.as_ref().map(|path| folder.join(path)), at.key("token_file"));
        let file = file.as_deref().map(|path| (path, &at_file));
        self.token = secret::find("token", "SPILE_ADMIN_TOKEN", variables, file, faults);
        if let Some(path) = self.registry_file {
            if store.is_shared() {
                let path = path.display();
                let message =
                    format!("`{path}` is for the embedded store, and the registry lives in {store}");
                let fix = "leave it out, or write `url = \"memory:\"`";
                faults.add(&at.key("registry_file"), message, fix);
            }
            self.registry_file = Some(folder.join(path));
        }
        self
    }
}

/// An admin listener that anyone could use: other machines can reach it, and it requires no token.
#[derive(Debug, thiserror::Error)]
#[error("admin would listen on {address}, beyond this machine, without a token: {TOKEN_HINT}")]
pub struct OpenAdmin {
    address: SocketAddr,
}

/// How an admin API gets a token.
pub(super) const TOKEN_HINT: &str = "set SPILE_ADMIN_TOKEN or admin.token_file";

impl Config {
    /// The file in which changes survive a restart: beside the buckets, unless it is named. `None` if the registry is in Redis or nothing
    /// is stored.
    pub(crate) fn registry_file(&self) -> Option<PathBuf> {
        let beside = || {
            let mut path =
                self.store.path.clone().filter(|_| self.store.url == StoreUrl::Memory)?.into_os_string();
            path.push(".registry");
            Some(path.into())
        };
        self.admin.registry_file.clone().or_else(beside)
    }

    /// Returns an error if there is no token and other machines can reach the admin listener at this address.
    pub(crate) fn refuse_open_admin(&self, address: SocketAddr) -> Result<(), OpenAdmin> {
        match &self.admin.token {
            None if !address.ip().to_canonical().is_loopback() => Err(OpenAdmin { address }),
            _ => Ok(()),
        }
    }
}
