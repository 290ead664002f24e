//! The table.

use std::fmt;
use std::time::Duration;

/// What one scenario found.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) decisions: usize,
    pub(crate) by_policy: usize,
    pub(crate) slowest: Duration,
    /// The time from healing to the last decision that the policy had to take; `None` if nothing had to heal.
    pub(crate) recovery: Option<Duration>,
    /// Tokens beyond capacity and refill, in the worst bucket.
    pub(crate) over_admission: f64,
    /// The promises that were not kept.
    pub(crate) breaches: Vec<String>,
}

/// The lines above the rows, in Markdown like them.
pub(crate) fn head() -> String {
    format!(
        "| {:<34} | {:>9} | {:>9} | {:>10} | {:>10} | {:>14} |\n|{:-<36}|{:->11}|{:->11}|{:->12}|{:->12}|{:->16}|",
        "fault",
        "decisions",
        "by policy",
        "slowest ms",
        "recover ms",
        "over-admission",
        "",
        ":",
        ":",
        ":",
        ":",
        ":"
    )
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "| {:<34} | {:>9} | {:>9} | {:>10.1} | {:>10.0} | {:>14.1} |",
            self.name,
            self.decisions,
            self.by_policy,
            ms(self.slowest),
            self.recovery.map_or(0.0, ms),
            self.over_admission,
        )?;
        self.breaches.iter().try_for_each(|breach| write!(f, "\n    BROKEN: {breach}"))
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
