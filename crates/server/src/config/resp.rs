//! The password of clients of the Redis protocol, and how long they may be idle.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::secret;
use super::source::{Faults, Location};
use super::tls::TlsConfig;
use super::value::RequestSpan;
use crate::secret::Secret;

/// `[resp]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RespConfig {
    /// Without a password, every client is admitted.
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
        at: &Location<'_>,
        variables: &[(String, String)],
        folder: &Path,
        faults: &mut Faults,
    ) -> Self {
        let (file, at_file) =
            (self.password_file.as_ref().map(|path| folder.join(path)), at.key("password_file"));
        let file = file.as_deref().map(|path| (path, &at_file));
        self.password = secret::find("password", "SPILE_RESP_PASSWORD", variables, file, faults);
        self
    }
}
