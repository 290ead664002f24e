//! What clients of the Redis protocol have to know, and how long they may be idle.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::source::{At, Faults};
use super::tls::TlsConfig;
use super::value::RequestSpan;
use crate::secret::{NoSecret, Secret};

/// The variable that holds the password, before any file.
const PASSWORD: &str = "SPILE_RESP_PASSWORD";
const FIX: &str = "`openssl rand -hex 32` makes one";

/// `[resp]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct RespConfig {
    /// Every client may ask if there is no password.
    #[serde(skip)]
    pub(crate) password: Option<Secret>,
    pub(crate) password_file: Option<PathBuf>,
    /// How long a connection may be idle.
    #[serde(with = "RequestSpan")]
    pub idle_timeout: Duration,
    /// The certificate that clients see; no TLS is spoken if `None`.
    #[serde(skip)]
    pub tls: Option<TlsConfig>,
}

impl Default for RespConfig {
    fn default() -> Self {
        // Longer than over HTTP: pools of Redis clients keep connections, and some report one that is closed.
        Self { password: None, password_file: None, idle_timeout: Duration::from_secs(300), tls: None }
    }
}

impl RespConfig {
    /// Reads the password. Relative paths start from the folder of the configuration file.
    pub(super) fn finish(
        mut self,
        at: &At<'_>,
        variables: &[(String, String)],
        folder: &Path,
        faults: &mut Faults,
    ) -> Self {
        let from_variable = variables.iter().find(|(name, _)| name == PASSWORD);
        self.password = match (from_variable, &self.password_file) {
            (Some((name, password)), _) => check_password(password, &At::variable(name), faults),
            (None, Some(path)) => read_password(&folder.join(path), &at.key("password_file"), faults),
            (None, None) => None,
        };
        self
    }
}

/// A file that is not there is an error: without a password the listener would be open to everybody.
fn read_password(path: &Path, at: &At<'_>, faults: &mut Faults) -> Option<Secret> {
    match std::fs::read_to_string(path) {
        Ok(password) => check_password(password.trim(), at, faults),
        Err(why) => {
            let message = format!("the password cannot be read: {why}");
            faults.add(at, message, "a file that holds the password");
            None
        }
    }
}

fn check_password(password: &str, at: &At<'_>, faults: &mut Faults) -> Option<Secret> {
    let secret = Secret::new(password);
    secret.map_err(|NoSecret| faults.add(at, "the password is empty", FIX)).ok()
}
