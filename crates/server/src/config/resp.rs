//! What clients of the Redis protocol have to know, and how long they may be idle.

use std::path::{Path, PathBuf};
use std::time::Duration;

use spile_listener::Tls;

use super::duration;
use super::file::{Faults, Place, RespFile, Spot};
use super::tls::TlsConfig;
use crate::secret::{NoSecret, Secret};

/// The variable that holds the password, before any file.
const PASSWORD: &str = "SPILE_RESP_PASSWORD";
const FIX: &str = "`openssl rand -hex 32` makes one";

/// `[resp]`.
#[derive(Clone, Debug)]
pub struct RespConfig {
    /// Whoever connects may ask, where there is none.
    pub(crate) password: Option<Secret>,
    pub(crate) password_file: Option<PathBuf>,
    /// How long a connection may be idle.
    pub idle_timeout: Duration,
    /// The certificate that clients see; none is spoken if there is none.
    pub tls: Option<TlsConfig>,
}

impl Default for RespConfig {
    fn default() -> Self {
        // Longer than over HTTP: pools of Redis clients keep connections, and some report one that is closed.
        Self { password: None, password_file: None, idle_timeout: Duration::from_secs(300), tls: None }
    }
}

impl RespConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn check(
        file: RespFile,
        variables: &[(String, String)],
        folder: &Path,
        faults: &mut Faults,
    ) -> Self {
        let usual = Self::default();
        let idle = file.idle_timeout.and_then(|text| duration::check(&text, duration::REQUEST, faults));
        let from_variable = variables.iter().find(|(name, _)| name == PASSWORD);
        let password = match (from_variable, &file.password_file) {
            (Some((name, password)), _) => {
                check_password(password, &Place::Environment(name.clone()), faults)
            }
            (None, Some(path)) => read_password(path, folder, faults),
            (None, None) => None,
        };
        Self {
            password,
            password_file: file.password_file.map(|path| path.value.into()),
            idle_timeout: idle.unwrap_or(usual.idle_timeout),
            tls: TlsConfig::check(file.tls, Tls::OTHER, folder, faults),
        }
    }
}

/// A file that is not there is an error: without a password the listener would be open to everybody.
fn read_password(Spot { value, place }: &Spot<String>, folder: &Path, faults: &mut Faults) -> Option<Secret> {
    match std::fs::read_to_string(folder.join(value)) {
        Ok(password) => check_password(password.trim(), place, faults),
        Err(why) => {
            let message = format!("the password cannot be read: {why}");
            faults.add(place, message, "a file that holds the password");
            None
        }
    }
}

fn check_password(password: &str, place: &Place, faults: &mut Faults) -> Option<Secret> {
    let secret = Secret::new(password);
    secret.map_err(|NoSecret| faults.add(place, "the password is empty", FIX)).ok()
}
