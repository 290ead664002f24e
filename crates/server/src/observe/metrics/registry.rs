//! Metrics of the registry: its version, its quarantined entries, and how often its file could not be written.

use std::sync::OnceLock;

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

use super::Telemetry;
use crate::registry::{Kind, OTHER, Quarantine};

const VERSION: &str = "ratelimit_registry_version";
const QUARANTINED: &str = "spile_registry_quarantined";
const FILE_FAILURES: &str = "spile_registry_file_failures_total";

/// The metrics of the registry.
pub(crate) struct RegistryMetrics {
    telemetry: Telemetry,
    /// Set once a shared registry has been read.
    version: OnceLock<Gauge>,
    /// One gauge for each kind of entry, and one for entries of an unknown kind.
    quarantined: [(Option<Kind>, Gauge); 4],
    file_failures: Counter,
}

impl RegistryMetrics {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        let [plans, rules, tenants] = Kind::ALL.map(Some);
        let (quarantined, file_failures) = telemetry.register(|| {
            describe_gauge!(
                QUARANTINED,
                "Entries of the registry that conflict with the file and are not in force."
            );
            describe_counter!(FILE_FAILURES, "Changes that could not be written to the registry file.");
            let of_kind = |kind: Option<Kind>| {
                let label = kind.map_or(OTHER, Kind::as_str);
                (kind, gauge!(QUARANTINED, "kind" => label))
            };
            ([plans, rules, tenants, None].map(of_kind), counter!(FILE_FAILURES))
        });
        Self { telemetry: telemetry.clone(), version: OnceLock::new(), quarantined, file_failures }
    }

    pub(crate) fn show_version(&self, version: u64) {
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

    pub(crate) fn show_quarantine(&self, quarantine: &Quarantine) {
        for (kind, gauge) in &self.quarantined {
            gauge.set(quarantine.count(*kind) as f64);
        }
    }

    pub(crate) fn count_file_failure(&self) {
        self.file_failures.increment(1);
    }
}
