//! The two units that every bucket is kept in: millionths of a token, and microseconds.
//!
//! Both fit a double exactly (below 2^53), which is what lets the Lua script and this crate agree bit for bit.

use std::time::Duration;

/// Millionths of a token. Fewer than none are a debt.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MicroTokens(i64);

impl MicroTokens {
    /// How many micro-tokens make a token.
    pub const PER_TOKEN: i64 = 1_000_000;

    /// This many micro-tokens.
    pub const fn new(micro_tokens: i64) -> Self {
        Self(micro_tokens)
    }

    /// This many whole tokens.
    pub const fn from_tokens(tokens: u32) -> Self {
        Self(tokens as i64 * Self::PER_TOKEN)
    }

    /// The count of micro-tokens.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whole tokens, rounded down: what a caller can still spend. None if it is a debt.
    pub const fn whole_tokens(self) -> u64 {
        if self.0 > 0 { (self.0 / Self::PER_TOKEN).unsigned_abs() } else { 0 }
    }

    /// Whole tokens, rounded up. None if it is a debt.
    pub const fn rounded_up(self) -> u64 {
        if self.0 > 0 { self.0.unsigned_abs().div_ceil(Self::PER_TOKEN.unsigned_abs()) } else { 0 }
    }

    /// Whole tokens that are owed, rounded up. Zero if it is no debt.
    pub const fn owed_tokens(self) -> u64 {
        Self(-self.0).rounded_up()
    }
}

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

    /// Microseconds from `earlier` to `self`; zero where `earlier` is the later one.
    pub const fn since_us(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment and `us` microseconds more.
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
