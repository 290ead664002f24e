//! Which version of the registry an instance runs with, where instances share one.

use std::sync::OnceLock;

use metrics::{Gauge, describe_gauge, gauge};

use super::Telemetry;

const VERSION: &str = "ratelimit_registry_version";

/// The version. There is no series until there is one.
pub(crate) struct RegistryGauge {
    telemetry: Telemetry,
    version: OnceLock<Gauge>,
}

impl RegistryGauge {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        Self { telemetry: telemetry.clone(), version: OnceLock::new() }
    }

    pub(crate) fn show(&self, version: u64) {
        let gauge = self.version.get_or_init(|| {
            self.telemetry.register(|| {
                describe_gauge!(
                    VERSION,
                    "The version of the shared registry that is in force; the same on all instances."
                );
                gauge!(VERSION)
            })
        });
        gauge.set(version as f64);
    }
}
