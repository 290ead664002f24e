//! Shows whether the current configuration file or registry is refused.

use metrics::{Gauge, describe_gauge, gauge};

use super::Telemetry;

const REFUSED: &str = "ratelimit_config_refused";

/// 1 while the file, or the content of the registry, is refused and an older version is in force.
pub(crate) struct RefusedGauges {
    file: Gauge,
    registry: Gauge,
}

impl RefusedGauges {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        telemetry.register(|| {
            describe_gauge!(
                REFUSED,
                "1 while the configuration from this source is refused and an older one runs."
            );
            let gauges = Self {
                file: gauge!(REFUSED, "source" => "file"),
                registry: gauge!(REFUSED, "source" => "registry"),
            };
            gauges.show_file(false);
            gauges.show_registry(false);
            gauges
        })
    }

    pub(crate) fn show_file(&self, refused: bool) {
        self.file.set(f64::from(u8::from(refused)));
    }

    pub(crate) fn show_registry(&self, refused: bool) {
        self.registry.set(f64::from(u8::from(refused)));
    }
}
