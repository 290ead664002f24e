//! Who may change things, and where changes are kept.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use spile_listener::Tls;

use super::file::{AdminFile, Faults, Place, Spot};
use super::tls::TlsConfig;
use super::{Config, StoreUrl};
use crate::secret::{NoSecret, Secret};

/// The variable that holds the token, before any file.
const TOKEN: &str = "SPILE_ADMIN_TOKEN";

/// Who may change things, and where changes are kept.
#[derive(Clone, Debug, Default)]
pub struct AdminConfig {
    /// Nobody may, where there is none.
    pub(crate) token: Option<Secret>,
    pub(crate) token_file: Option<PathBuf>,
    /// Changes are forgotten with the process where there is none.
    pub(crate) registry_file: Option<PathBuf>,
    /// The certificate that clients see; plain HTTP if there is none.
    pub tls: Option<TlsConfig>,
}

impl AdminConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn check(
        file: AdminFile,
        store: &StoreUrl,
        variables: &[(String, String)],
        folder: &Path,
        faults: &mut Faults,
    ) -> Self {
        let from_variable = variables.iter().find(|(name, _)| name == TOKEN);
        let token = match (from_variable, &file.token_file) {
            (Some((name, token)), _) => check_token(token, &Place::Environment(name.clone()), faults),
            (None, Some(path)) => read_token(path, folder, faults),
            (None, None) => None,
        };
        let registry_file = file.registry_file.map(|Spot { value, place }| {
            if *store != StoreUrl::Memory {
                let message =
                    format!("`{value}` is for the embedded store, and the registry lives in {store}");
                faults.add(&place, message, "leave it out, or write `url = \"memory:\"`");
            }
            folder.join(value)
        });
        let tls = TlsConfig::check(file.tls, Tls::HTTP, folder, faults);
        Self { token, token_file: file.token_file.map(|path| path.value.into()), registry_file, tls }
    }
}

/// An admin listener that strangers could use: it is reached from other machines, and asks for no token.
#[derive(Debug, thiserror::Error)]
#[error("admin would listen on {address}, beyond this machine, without a token: {fix}")]
pub struct OpenAdmin {
    address: SocketAddr,
    fix: String,
}

impl Config {
    /// Refuses an admin listener without a token on any of these addresses but those of this machine alone.
    pub(crate) fn refuse_open_admin(
        &self,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<(), OpenAdmin> {
        let mut beyond = addresses.into_iter().filter(|address| !address.ip().is_loopback());
        match (beyond.next(), &self.admin.token) {
            (Some(address), None) => {
                let fix = match &self.admin.token_file {
                    Some(path) => format!("there is none in {}", path.display()),
                    None => "set SPILE_ADMIN_TOKEN or admin.token_file".to_owned(),
                };
                Err(OpenAdmin { address, fix })
            }
            _ => Ok(()),
        }
    }
}

fn read_token(Spot { value, place }: &Spot<String>, folder: &Path, faults: &mut Faults) -> Option<Secret> {
    match std::fs::read_to_string(folder.join(value)) {
        Ok(token) => check_token(token.trim(), place, faults),
        // Without a token the admin API stays closed, which is a safe thing to start with.
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => None,
        Err(why) => {
            faults.add(place, format_args!("the token cannot be read: {why}"), "a file that holds the token");
            None
        }
    }
}

fn check_token(token: &str, place: &Place, faults: &mut Faults) -> Option<Secret> {
    let secret = Secret::new(token);
    secret.map_err(|why: NoSecret| faults.add(place, why, "`openssl rand -hex 32` makes one")).ok()
}
