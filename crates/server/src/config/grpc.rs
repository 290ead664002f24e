//! How long Envoy is kept waiting.

use std::time::Duration;

use super::duration;
use super::file::{Faults, GrpcFile};

/// `[grpc]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GrpcConfig {
    /// How long the store may take to answer; afterwards the failure policy decides.
    pub timeout: Duration,
}

impl Default for GrpcConfig {
    fn default() -> Self {
        // Envoy itself waits for 20 ms, unless it is told otherwise, and then lets the request pass.
        Self { timeout: Duration::from_millis(15) }
    }
}

impl GrpcConfig {
    pub(super) fn check(file: GrpcFile, faults: &mut Faults) -> Self {
        let usual = Self::default();
        let timeout = file.timeout.and_then(|text| duration::check(&text, duration::STORE, faults));
        Self { timeout: timeout.unwrap_or(usual.timeout) }
    }
}
