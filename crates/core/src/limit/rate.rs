//! The shape of a rate: tokens come back continuously.

use std::fmt;
use std::time::Duration;

use super::{Limit, LimitError, Shape, write_span};
use crate::{Amount, Unit};

/// Tokens come back at a rate, up to the capacity. Optionally has a lease, which does not change what may pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    refill: Amount,
    period_us: u64,
    /// Micro-tokens per microsecond, which is tokens per second. Derived from the two fields above, and stored because every
    /// decision multiplies by it, and this crate and the script must multiply by the same double.
    per_us: f64,
    /// Zero without a lease.
    pub(super) lease_us: u32,
}

impl Rate {
    /// The tokens that come back per [`period`](Self::period).
    pub const fn refill(&self) -> Amount {
        self.refill
    }

    /// The time in which [`refill`](Self::refill) tokens come back.
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// Tokens per second, the one number that the arithmetic uses.
    pub const fn per_second(&self) -> f64 {
        self.per_us
    }

    pub(super) const fn lease(&self) -> Option<Duration> {
        match self.lease_us {
            0 => None,
            us => Some(Duration::from_micros(us as u64)),
        }
    }

    /// True if this amount comes back within [`Limit::MAX_FILL`].
    pub(super) fn gains_in_time(&self, amount: Amount) -> bool {
        amount.as_f64() / self.per_us <= Limit::MAX_FILL.as_secs_f64()
    }

    /// The micro-tokens that come back in this time, rounded down.
    #[inline]
    pub(crate) fn gained_in(&self, elapsed_us: u64) -> i64 {
        // A signed integer converts to a double in one instruction. No clock is ahead by half of the range.
        let elapsed_us = elapsed_us.min(i64::MAX as u64).cast_signed() as f64;
        // The cast rounds down, as `floor` does. It saturates at the largest integer, which is far beyond any capacity.
        (elapsed_us * self.per_us) as i64
    }

    /// The fewest microseconds in which `micro_tokens` come back.
    pub(crate) fn time_to_gain_us(&self, micro_tokens: i64) -> u64 {
        let wanted = micro_tokens as f64;
        let wait = (wanted / self.per_us).ceil();
        // The quotient may have been rounded down onto a whole number; one more microsecond covers that as long as a microsecond
        // refills more than the rounding error. A debt that a slow limit inherited may take longer than 64 bits of microseconds.
        (wait as u64).saturating_add(u64::from((wait * self.per_us).floor() < wanted))
    }

    /// The rate of one of several instances, for a bucket of this capacity.
    pub(super) fn share_of(&self, replicas: u64, capacity: Amount) -> Self {
        // Lengthening the period is exact; dividing the refill would round.
        let period_us = u128::from(self.period_us) * u128::from(replicas);
        let micro = |amount: Amount| u128::from(amount.micro().unsigned_abs());
        let period_of = |amount: Amount| {
            let us = period_us.checked_mul(micro(amount))?.div_ceil(micro(self.refill));
            Some((amount, u64::try_from(us).ok()?))
        };
        // A period that does not fit 64 bits is expressed as the period of one token, or else of one micro-token.
        let least = Amount::from_micro(1);
        let period = [self.refill, Amount::TOKEN, least].into_iter().find_map(period_of);
        let (refill, period_us) = period.unwrap_or((least, u64::MAX));
        let share = Self::checked(capacity, refill, period_us);
        share.unwrap_or_else(|_| Self::of(capacity, SLOWEST_US))
    }

    fn checked(capacity: Amount, refill: Amount, period_us: u64) -> Result<Self, LimitError> {
        let rate = Self::of(refill, period_us);
        let per_second = rate.per_us;
        match rate.gains_in_time(capacity) {
            _ if per_second > Limit::MAX_RATE => Err(LimitError::Rate(per_second)),
            true => Ok(rate),
            false => Err(LimitError::FillTime { capacity, per_second }),
        }
    }

    /// Assembles a rate. The caller knows that the parts are within bounds, or checks the result.
    fn of(refill: Amount, period_us: u64) -> Self {
        Self { refill, period_us, per_us: refill.micro() as f64 / period_us as f64, lease_us: 0 }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.refill)?;
        match self.period_us {
            1_000_000 => f.write_str("s"),
            60_000_000 => f.write_str("min"),
            3_600_000_000 => f.write_str("h"),
            86_400_000_000 => f.write_str("day"),
            us => write_span(f, us),
        }
    }
}

/// A builder of a rate. [`build`](Self::build) checks the bounds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "call build(), or give it to a Plan"]
pub struct RateBuilder {
    pub(super) capacity: Amount,
    pub(super) refill: Amount,
    pub(super) period: Duration,
    pub(super) unit: Unit,
    pub(super) lease: Option<Duration>,
    pub(super) debt: Option<Amount>,
}

impl RateBuilder {
    pub(super) fn new(refill: Amount, period: Duration) -> Self {
        Self { capacity: refill, refill, period, unit: Unit::default(), lease: None, debt: None }
    }

    /// Sets the burst: the most tokens that can be spent at once.
    pub fn burst(self, tokens: impl Into<Amount>) -> Self {
        Self { capacity: tokens.into(), ..self }
    }

    /// Sets the unit.
    pub fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// Lets an instance take tokens of a hot bucket from a shared store in advance, decide locally, and return the rest after this
    /// time: 1 ms to 10 s. Has no effect on a store in this process.
    pub fn lease(self, time: Duration) -> Self {
        Self { lease: Some(time), ..self }
    }

    /// Lets late charges take up to `tokens` beyond what is available: 0 to [`Limit::MAX_TOKENS`], by default the capacity.
    pub fn debt(self, tokens: impl Into<Amount>) -> Self {
        Self { debt: Some(tokens.into()), ..self }
    }

    /// Builds the limit if it is within the bounds.
    pub fn build(self) -> Result<Limit, LimitError> {
        let Self { refill, unit, lease, debt, .. } = self;
        // Checked first: without a burst the capacity equals the refill, and the error has to name the number that was written.
        if !(Amount::ZERO < refill && refill <= Limit::MAX_AMOUNT) {
            return Err(LimitError::Refill(refill));
        }
        let capacity = Limit::bounded(self.capacity, unit)?;
        let period_us = u64::try_from(self.period.as_micros())
            .ok()
            .filter(|&us| us > 0 && Duration::from_micros(us) == self.period)
            .ok_or(LimitError::Period(self.period))?;
        let mut rate = Rate::checked(capacity, refill, period_us)?;
        if let Some(lease) = lease {
            let lease_us = u32::try_from(lease.as_micros()).ok().filter(|_| Limit::LEASES.contains(&lease));
            rate.lease_us = lease_us.ok_or(LimitError::Lease(lease))?;
        }
        Limit { capacity, unit, debt: capacity, shape: Shape::Rate(rate) }.with_debt(debt)
    }
}

/// The longest time to fill: a microsecond less than the bound, because the rate is rounded and the time to fill is a quotient of
/// it.
const SLOWEST_US: u64 = Limit::MAX_FILL.as_micros() as u64 - 1;
