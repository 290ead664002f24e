//! What the binary was built from: version, commit, profile, target and features.

use metrics::{describe_gauge, gauge};

use super::metrics::Telemetry;

/// The version of the crate.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The first digits of the commit, or `unknown`.
pub(crate) const COMMIT: &str = env!("SPILE_BUILD_COMMIT");
const PROFILE: &str = env!("SPILE_BUILD_PROFILE");
const TARGET: &str = env!("SPILE_BUILD_TARGET");
/// The optional features of the crates below that this binary has.
const FEATURES: &str = "dashboard,otlp,top,webhooks";

const BUILD_INFO: &str = "spile_build_info";

/// What `spile --version` prints after the name.
pub(crate) const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:   ",
    env!("SPILE_BUILD_COMMIT"),
    "\nprofile:  ",
    env!("SPILE_BUILD_PROFILE"),
    "\ntarget:   ",
    env!("SPILE_BUILD_TARGET"),
    "\nfeatures: dashboard,otlp,top,webhooks"
);

/// Registers a gauge that is always 1 and says by its labels what runs.
pub(crate) fn register(telemetry: &Telemetry) {
    telemetry.register(|| {
        describe_gauge!(BUILD_INFO, "What runs, in labels. The value is always 1.");
        let labels = [
            ("version", VERSION),
            ("commit", COMMIT),
            ("profile", PROFILE),
            ("target", TARGET),
            ("features", FEATURES),
        ];
        gauge!(BUILD_INFO, &labels).set(1.0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_version_names_the_features_of_the_metric() {
        assert!(LONG_VERSION.ends_with(&format!("features: {FEATURES}")), "{LONG_VERSION}");
    }
}
