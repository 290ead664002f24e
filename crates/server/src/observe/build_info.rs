//! The origin of the binary: version, commit, profile, target, features and time zones.

use std::sync::LazyLock;

use metrics::{describe_gauge, gauge};
use spile_calendar::tzdb_version;

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

/// The text that `spile --version` prints after the name.
pub(crate) fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let tzdata = tzdb_version();
        format!(
            "{VERSION}\ncommit:   {COMMIT}\nprofile:  {PROFILE}\ntarget:   {TARGET}\nfeatures: {FEATURES}\ntzdata:   {tzdata}"
        )
    });
    &TEXT
}

/// Registers a gauge that is always 1 and whose labels describe the build.
pub(crate) fn register(telemetry: &Telemetry) {
    telemetry.register(|| {
        describe_gauge!(
            BUILD_INFO,
            "Version, commit and features of the process, in labels. The value is always 1."
        );
        let labels = [
            ("version", VERSION),
            ("commit", COMMIT),
            ("profile", PROFILE),
            ("target", TARGET),
            ("features", FEATURES),
            ("tzdata", tzdb_version()),
        ];
        gauge!(BUILD_INFO, &labels).set(1.0);
    });
}
