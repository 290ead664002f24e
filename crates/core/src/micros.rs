//! Moments, in microseconds. They are exact in a double (below 2^53), so this crate and the Lua script agree bit for bit.

use std::time::Duration;

/// A moment: microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Micros(u64);

impl Micros {
    /// The moment this many microseconds after the epoch.
    pub const fn new(micros: u64) -> Self {
        Self(micros)
    }

    /// The moment this many seconds after the epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000)
    }

    /// Microseconds since the epoch.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Microseconds from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since_us(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment plus `us` microseconds.
    #[must_use]
    pub const fn plus_us(self, us: u64) -> Self {
        Self(self.0.saturating_add(us))
    }

    /// Whole seconds since the epoch, rounded up.
    pub const fn epoch_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }
}

impl std::ops::Add<Duration> for Micros {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        self.plus_us(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
    }
}

impl std::ops::Sub<Duration> for Micros {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }
}
