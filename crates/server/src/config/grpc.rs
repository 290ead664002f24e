//! How long Envoy is kept waiting.

use std::path::Path;
use std::time::Duration;

use spile_listener::Tls;

use super::duration;
use super::file::{Faults, GrpcFile};
use super::tls::TlsConfig;

/// `[grpc]`.
#[derive(Clone, Debug)]
pub struct GrpcConfig {
    /// How long the store may take to answer; afterwards the failure policy decides.
    pub timeout: Duration,
    /// The certificate that clients see; plain HTTP/2 if there is none.
    pub tls: Option<TlsConfig>,
}

impl Default for GrpcConfig {
    fn default() -> Self {
        // Envoy itself waits for 20 ms, unless it is told otherwise, and then lets the request pass.
        Self { timeout: Duration::from_millis(15), tls: None }
    }
}

impl GrpcConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn check(file: GrpcFile, folder: &Path, faults: &mut Faults) -> Self {
        let usual = Self::default();
        let timeout = file.timeout.and_then(|text| duration::check(&text, duration::STORE, faults));
        let tls = TlsConfig::check(file.tls, Tls::HTTP2, folder, faults);
        Self { timeout: timeout.unwrap_or(usual.timeout), tls }
    }
}
