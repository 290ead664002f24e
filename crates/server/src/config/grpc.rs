//! How long Envoy waits, and the header fields for its clients.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tls::TlsConfig;
use super::value::StoreSpan;

/// `[grpc]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcConfig {
    /// How long the store may take to answer; afterwards the failure policy decides.
    #[serde(with = "StoreSpan")]
    pub timeout: Duration,
    /// Whether responses have `X-RateLimit-…` and `RateLimit…`. `Retry-After` is sent in any case.
    pub rate_limit_headers: bool,
    /// The certificate that clients see; plain HTTP/2 if `None`.
    #[serde(skip)]
    pub tls: Option<TlsConfig>,
}

impl Default for GrpcConfig {
    fn default() -> Self {
        // Envoy waits 20 ms by default, and then lets the request pass.
        Self { timeout: Duration::from_millis(15), rate_limit_headers: true, tls: None }
    }
}
