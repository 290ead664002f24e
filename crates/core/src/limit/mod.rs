//! A limit: how much at once, and how fast it comes back. Cannot be built outside the bounds that keep the
//! arithmetic exact.

mod quota;
mod text;

use std::fmt;
use std::time::Duration;

pub use self::quota::{QuotaWindows, Window, Windows};
pub use self::text::LimitTextError;
use crate::{Cost, MicroTokens};

/// A rate: a capacity (the burst) and a refill, tokens per period. Or a quota: so many tokens in each window of a calendar. Or a
/// concurrency: so many permits at once. Optionally a lease, which does not change what may pass, and a debt.
///
/// ```
/// # use spile_core as spile;
/// use spile::Limit;
///
/// let limit = Limit::per_second(50).burst(100).build()?;
/// assert_eq!(limit.to_string(), "100, 50/s");
/// assert_eq!("100/min".parse::<Limit>()?, Limit::per_minute(100).build()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    capacity: u32,
    refill: u32,
    /// For a concurrency, how long a permit is held.
    period_us: u64,
    /// Micro-tokens per microsecond, which is tokens per second. Derived from the three above, kept because
    /// every decision multiplies by it and both sides must multiply by the same double. Zero for a concurrency: its permits
    /// come back when they are released.
    rate: f64,
    /// How long an instance may keep tokens that it took in advance. Zero if it takes none.
    lease_us: u32,
    /// Tokens that late charges may take beyond what is there.
    debt: u32,
    /// The windows of a quota. The refill and the period then tell how much that is on average.
    windows: Option<QuotaWindows>,
}

impl Limit {
    /// The most tokens that a bucket holds, and the most that a refill period brings.
    pub const MAX_TOKENS: u32 = 1_000_000_000;
    /// The shortest and the longest lease.
    pub const LEASES: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
    /// The shortest and the longest time for which a permit is held without being renewed.
    pub const HOLDS: std::ops::RangeInclusive<Duration> =
        Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);
    /// How long a permit is held unless [`LimitBuilder::hold`] says otherwise.
    pub const DEFAULT_HOLD: Duration = Duration::from_secs(30);
    /// The most permits of a concurrency.
    pub const MAX_PERMITS: u32 = 1_000_000;
    /// The fastest refill, in tokens per second.
    pub const MAX_RATE: f64 = 1e9;
    /// The longest time that a drained bucket may take to be full again: ten years.
    pub const MAX_FILL: Duration = Duration::from_secs(10 * 365 * 86_400 + 3 * 86_400);

    /// `tokens` come back every second. As many may be spent at once, unless [`LimitBuilder::burst`] sets another number.
    pub const fn per_second(tokens: u64) -> LimitBuilder {
        Self::per(tokens, Duration::from_secs(1))
    }

    /// `tokens` come back every minute.
    pub const fn per_minute(tokens: u64) -> LimitBuilder {
        Self::per(tokens, Duration::from_secs(60))
    }

    /// `tokens` come back every hour.
    pub const fn per_hour(tokens: u64) -> LimitBuilder {
        Self::per(tokens, Duration::from_secs(3_600))
    }

    /// `tokens` come back every day of 24 hours.
    pub const fn per_day(tokens: u64) -> LimitBuilder {
        Self::per(tokens, Duration::from_secs(86_400))
    }

    /// `tokens` come back every `period`, evenly: one token each `period / tokens`, not all at its end.
    pub const fn per(tokens: u64, period: Duration) -> LimitBuilder {
        LimitBuilder {
            capacity: tokens,
            refill: tokens,
            period,
            lease: None,
            debt: None,
            windows: None,
            bursts: false,
            hold: None,
            concurrency: false,
        }
    }

    /// A concurrency: at most `permits` are held at once. Each is held until it is released, or until its
    /// [hold time](LimitBuilder::hold) has passed since it was last renewed.
    pub const fn concurrent(permits: u64) -> LimitBuilder {
        LimitBuilder { concurrency: true, ..Self::per_second(permits) }
    }

    /// A quota: `tokens` in each of these windows, whenever they are spent.
    pub const fn per_window(tokens: u64, windows: QuotaWindows) -> LimitBuilder {
        LimitBuilder { windows: Some(windows), ..Self::per(tokens, Duration::from_secs(1)) }
    }

    /// `rate` tokens come back every second, with up to six decimals: `0.5` is one token each two seconds.
    pub fn per_second_f64(rate: f64, capacity: u64) -> Result<Self, LimitError> {
        let decimal = |places: i32| rate * 10f64.powi(places);
        let whole = |x: f64| (x - x.round()).abs() < 1e-9 * x.abs().max(1.0);
        let Some(places) = (0..=6).find(|&places| whole(decimal(places))) else {
            return Err(LimitError::Rate(rate));
        };
        let refill = decimal(places).round();
        if !(1.0..=f64::from(Self::MAX_TOKENS)).contains(&refill) {
            return Err(LimitError::Rate(rate));
        }
        Self::per(refill as u64, Duration::from_secs(10u64.pow(places.unsigned_abs())))
            .burst(capacity)
            .build()
    }

    /// The most tokens that can be spent at once.
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The windows of a quota. `None` for a rate.
    #[inline]
    pub const fn windows(&self) -> Option<QuotaWindows> {
        self.windows
    }

    /// How long a permit of a concurrency is held unless it is renewed or released. `None` for a rate or a quota.
    #[inline]
    pub const fn hold(&self) -> Option<Duration> {
        if self.is_concurrency() { Some(self.period()) } else { None }
    }

    /// True if it limits how many are at work at once, and so needs a permit.
    #[inline]
    pub const fn is_concurrency(&self) -> bool {
        // No rate is zero.
        self.rate == 0.0
    }

    /// What a request of this cost takes of it: one permit of a concurrency, whatever the cost.
    #[inline]
    pub(crate) const fn taken_by(&self, cost: Cost) -> Cost {
        if self.is_concurrency() { Cost::ONE } else { cost }
    }

    /// Tokens that come back per [`period`](Self::period). Zero for a concurrency.
    pub const fn refill(&self) -> u32 {
        self.refill
    }

    /// The time in which [`refill`](Self::refill) tokens come back. For a quota that is how long its windows are as a rule, for a
    /// concurrency how long a permit is held.
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// How long an instance may keep tokens that it took from a shared store in advance. `None` if each decision asks the
    /// store.
    pub const fn lease(&self) -> Option<Duration> {
        match self.lease_us {
            0 => None,
            us => Some(Duration::from_micros(us as u64)),
        }
    }

    /// The same limit without a lease: each decision asks the store.
    #[must_use]
    pub const fn without_lease(self) -> Self {
        Self { lease_us: 0, ..self }
    }

    /// How many tokens late charges may take beyond what is there. As many as the capacity, unless set.
    pub const fn debt(&self) -> u32 {
        self.debt
    }

    /// The debt in the unit that buckets are kept in.
    pub const fn debt_micro(&self) -> MicroTokens {
        MicroTokens::from_tokens(self.debt)
    }

    /// True if both have the same capacity and the same rate or windows, whatever their leases.
    pub fn fills_like(&self, other: &Self) -> bool {
        let as_fast = self.rate.to_bits() == other.rate.to_bits() && self.windows == other.windows;
        self.capacity == other.capacity && as_fast
    }

    /// Tokens per second, the one number that the arithmetic uses.
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// The capacity in the unit that buckets are kept in.
    pub const fn capacity_micro(&self) -> MicroTokens {
        MicroTokens::from_tokens(self.capacity)
    }

    /// Whether a request of this cost could ever pass.
    #[inline]
    pub const fn can_cover(&self, cost: Cost) -> bool {
        self.taken_by(cost).get() <= self.capacity
    }

    /// The time in which a drained bucket is full again, rounded up. For a quota the longest of its windows, for a concurrency
    /// how long a permit is held.
    pub fn fill_time(&self) -> Duration {
        if let Some(windows) = self.windows {
            return windows.longest();
        }
        if let Some(hold) = self.hold() {
            return hold;
        }
        Duration::from_micros(self.time_to_gain_us(self.capacity_micro().get()))
    }

    /// The same limit for one of `replicas` instances that each enforce their share: capacity and refill are
    /// divided, and the capacity never falls below one token. A share that would take longer than
    /// [`MAX_FILL`](Self::MAX_FILL) to fill is filled in that time.
    #[must_use]
    pub fn share_of(&self, replicas: u32) -> Self {
        let replicas = replicas.max(1);
        let capacity = (self.capacity / replicas).max(1);
        let debt =
            |share: Self| if self.debt == self.capacity { share.capacity } else { self.debt / replicas };
        if let Some(windows) = self.windows {
            let share = Self::in_windows(capacity, windows);
            return Self { debt: debt(share), ..share };
        }
        if self.is_concurrency() {
            return Self { capacity, ..*self };
        }
        // Dividing the rate by lengthening the period keeps it exact where dividing the refill would round.
        let period_us = u128::from(self.period_us) * u128::from(replicas);
        let (refill, period_us) = match u64::try_from(period_us) {
            Ok(period_us) => (self.refill, period_us),
            // A period that does not fit 64 bits is expressed as the period of one token.
            Err(_) => (1, u64::try_from(period_us.div_ceil(u128::from(self.refill))).unwrap_or(u64::MAX)),
        };
        let share = Self::checked(capacity, refill, period_us);
        let share = share.unwrap_or_else(|_| Self::of(capacity, refill, slowest_period_us(capacity, refill)));
        Self { debt: debt(share), ..share }
    }

    /// The fewest microseconds in which `micro_tokens` come back.
    pub(crate) fn time_to_gain_us(&self, micro_tokens: i64) -> u64 {
        let wanted = micro_tokens as f64;
        let wait = (wanted / self.rate).ceil();
        // The quotient may have been rounded down onto a whole number; one more microsecond always covers that,
        // for a wait stays below 2^49 and so a microsecond is worth more than the rounding.
        if (wait * self.rate).floor() < wanted { wait as u64 + 1 } else { wait as u64 }
    }

    /// The debt, if it can be repaid within [`MAX_FILL`](Self::MAX_FILL). That of a quota ends with the window.
    fn repayable(&self, debt: u64) -> Option<u32> {
        let debt = u32::try_from(debt).ok().filter(|&debt| debt <= Self::MAX_TOKENS)?;
        let is_soon = self.windows.is_some() || f64::from(debt) / self.rate <= Self::MAX_FILL.as_secs_f64();
        is_soon.then_some(debt)
    }

    fn checked(capacity: u32, refill: u32, period_us: u64) -> Result<Self, LimitError> {
        let limit = Self::of(capacity, refill, period_us);
        let rate = limit.rate;
        if rate > Self::MAX_RATE {
            return Err(LimitError::Rate(rate));
        }
        if f64::from(capacity) / rate > Self::MAX_FILL.as_secs_f64() {
            return Err(LimitError::FillTime { capacity, rate });
        }
        Ok(limit)
    }

    /// The limit of these parts. The caller knows that they are within bounds, or checks it afterwards.
    fn of(capacity: u32, refill: u32, period_us: u64) -> Self {
        let rate = f64::from(refill) * MicroTokens::PER_TOKEN as f64 / period_us as f64;
        Self { capacity, refill, period_us, rate, lease_us: 0, debt: capacity, windows: None }
    }

    /// The concurrency of these parts.
    const fn held_for(capacity: u32, hold_us: u64) -> Self {
        Self { capacity, refill: 0, period_us: hold_us, rate: 0.0, lease_us: 0, debt: 0, windows: None }
    }

    /// The quota of these parts.
    fn in_windows(capacity: u32, windows: QuotaWindows) -> Self {
        let period_us = u64::try_from(windows.period().as_micros()).unwrap_or(u64::MAX).max(1);
        Self { windows: Some(windows), ..Self::of(capacity, capacity, period_us) }
    }
}

impl fmt::Display for Limit {
    /// Reads `capacity, refill/period`, as in `10, 1/s`; a quota `capacity per window`, as in `1000 per month in Europe/Berlin`;
    /// a concurrency `capacity at once, held 30s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(windows) = self.windows {
            return write!(f, "{} per {windows}", self.capacity);
        }
        match self.hold() {
            Some(_) => write!(f, "{} at once, held ", self.capacity)?,
            None => write!(f, "{}, {}/", self.capacity, self.refill)?,
        }
        match self.period_us {
            1_000_000 if !self.is_concurrency() => f.write_str("s"),
            60_000_000 if !self.is_concurrency() => f.write_str("min"),
            3_600_000_000 if !self.is_concurrency() => f.write_str("h"),
            86_400_000_000 if !self.is_concurrency() => f.write_str("day"),
            us if us % 1_000_000 == 0 => write!(f, "{}s", us / 1_000_000),
            us if us % 1_000 == 0 => write!(f, "{}ms", us / 1_000),
            us => write!(f, "{us}us"),
        }
    }
}

/// A limit that has not been checked yet. [`build`](Self::build) checks it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "call build(), or give it to a Plan"]
pub struct LimitBuilder {
    capacity: u64,
    refill: u64,
    period: Duration,
    lease: Option<Duration>,
    debt: Option<u64>,
    windows: Option<QuotaWindows>,
    /// True if a burst was set, which only a rate has.
    bursts: bool,
    /// The hold time that was set, which only a concurrency has.
    hold: Option<Duration>,
    concurrency: bool,
}

impl LimitBuilder {
    /// Up to `tokens` may be spent at once. For a rate: a concurrency or a quota with a burst is not built.
    pub const fn burst(mut self, tokens: u64) -> Self {
        self.capacity = tokens;
        self.bursts = true;
        self
    }

    /// Lets an instance that is asked often take tokens from a shared store in advance, decide by itself, and give back after
    /// this long what is left: 1 ms to 10 s. A store in this process is always asked.
    pub const fn lease(mut self, time: Duration) -> Self {
        self.lease = Some(time);
        self
    }

    /// Holds a permit of a [concurrency](Limit::concurrent) for this long unless it is renewed or released: 1 second to 1 day, in
    /// whole milliseconds. A rate or a quota with a hold time is not built.
    pub const fn hold(mut self, time: Duration) -> Self {
        self.hold = Some(time);
        self
    }

    /// Late charges may take up to `tokens` beyond what is there: 0 to [`Limit::MAX_TOKENS`]. If not set, as many as the capacity.
    pub const fn debt(mut self, tokens: u64) -> Self {
        self.debt = Some(tokens);
        self
    }

    /// Makes it a limit of the shape of another one, of the capacity that it has: with the lease, the windows or the hold time of that one,
    /// and its debt if that is not just its capacity.
    pub const fn like(mut self, other: &Limit) -> Self {
        self.lease = other.lease();
        self.windows = other.windows;
        self.hold = other.hold();
        self.concurrency = other.is_concurrency();
        self.bursts = false;
        if self.concurrency {
            return self;
        }
        if other.debt != other.capacity {
            self.debt = Some(other.debt as u64);
        }
        self
    }

    /// The limit, if it lies within the bounds.
    pub fn build(self) -> Result<Limit, LimitError> {
        if self.bursts && (self.concurrency || self.windows.is_some()) {
            return Err(LimitError::Burst(self.capacity));
        }
        if self.concurrency {
            return self.build_concurrency();
        }
        if let Some(hold) = self.hold {
            return Err(LimitError::HoldOutsideConcurrency(hold));
        }
        let capacity = bounded(self.capacity).ok_or(LimitError::Capacity(self.capacity))?;
        let mut limit = match self.windows {
            Some(_) if self.lease.is_some() => return Err(LimitError::LeasedQuota),
            Some(windows) => Limit::in_windows(capacity, windows),
            None => self.build_rate(capacity)?,
        };
        if let Some(debt) = self.debt {
            limit.debt = limit.repayable(debt).ok_or(LimitError::Debt(debt))?;
        }
        Ok(limit)
    }

    fn build_concurrency(self) -> Result<Limit, LimitError> {
        let permits = bounded(self.capacity).filter(|permits| *permits <= Limit::MAX_PERMITS);
        let permits = permits.ok_or(LimitError::Permits(self.capacity))?;
        if self.lease.is_some() || self.debt.is_some() {
            return Err(LimitError::ConcurrencyOption);
        }
        let hold = self.hold.unwrap_or(Limit::DEFAULT_HOLD);
        if !(hold.subsec_nanos().is_multiple_of(1_000_000) && Limit::HOLDS.contains(&hold)) {
            return Err(LimitError::Hold(hold));
        }
        Ok(Limit::held_for(permits, hold.as_micros() as u64))
    }

    fn build_rate(self, capacity: u32) -> Result<Limit, LimitError> {
        let refill = bounded(self.refill).ok_or(LimitError::Refill(self.refill))?;
        let period_us = u64::try_from(self.period.as_micros())
            .ok()
            .filter(|&us| us > 0 && u128::from(us) * 1_000 == self.period.as_nanos())
            .ok_or(LimitError::Period(self.period))?;
        let limit = Limit::checked(capacity, refill, period_us)?;
        let Some(lease) = self.lease else { return Ok(limit) };
        let lease_us = u32::try_from(lease.as_micros()).ok().filter(|_| Limit::LEASES.contains(&lease));
        Ok(Limit { lease_us: lease_us.ok_or(LimitError::Lease(lease))?, ..limit })
    }
}

impl TryFrom<LimitBuilder> for Limit {
    type Error = LimitError;

    fn try_from(builder: LimitBuilder) -> Result<Self, LimitError> {
        builder.build()
    }
}

/// The longest period in which this refill still fills `capacity` in time.
fn slowest_period_us(capacity: u32, refill: u32) -> u64 {
    let longest = Limit::MAX_FILL.as_micros() * u128::from(refill) / u128::from(capacity);
    let longest = u64::try_from(longest).unwrap_or(u64::MAX);
    // A little less than that: the rate is rounded, and the time to fill is a quotient of it.
    longest - (longest >> 51) - 1
}

fn bounded(tokens: u64) -> Option<u32> {
    u32::try_from(tokens).ok().filter(|n| (1..=Limit::MAX_TOKENS).contains(n))
}

/// Why a limit cannot be built. Each names the value and the bound.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The burst is zero or too large to stay exact.
    #[error("capacity {0} is outside 1 to {max} tokens", max = Limit::MAX_TOKENS)]
    Capacity(u64),
    /// The refill is zero or too large to stay exact.
    #[error("refill {0} is outside 1 to {max} tokens per period", max = Limit::MAX_TOKENS)]
    Refill(u64),
    /// The period is zero, finer than a microsecond, or too long for 64 bits of microseconds.
    #[error("period {0:?} is not a whole number of microseconds, at least one")]
    Period(Duration),
    /// The refill is too fast, too slow or too finely divided to stay exact.
    #[error("a refill of {0} tokens per second is outside 0.000001 to 1000000000 with at most six decimals")]
    Rate(f64),
    /// The debt is too large to stay exact, or would take too long to repay.
    #[error("a debt of {0} is outside 0 to {max} tokens, or takes over ten years to repay", max = Limit::MAX_TOKENS)]
    Debt(u64),
    /// The tokens of a quota are not taken in advance: those at an idle instance would be lost to the window.
    #[error("a quota has no lease")]
    LeasedQuota,
    /// The number of permits is zero or too large.
    #[error("concurrency {0} is outside 1 to {max} permits", max = Limit::MAX_PERMITS)]
    Permits(u64),
    /// The hold time is too short to be renewed in time, or so long that a lost permit would block others for days.
    #[error("a hold time of {0:?} is outside 1 s to 1 day in whole milliseconds")]
    Hold(Duration),
    /// The limit is not a concurrency, so that there are no permits to hold.
    #[error("a hold time of {0:?} is for a concurrency: write `Limit::concurrent(n).hold(…)`")]
    HoldOutsideConcurrency(Duration),
    /// The limit is not a rate, so that nothing beside its number of permits or tokens can be spent at once.
    #[error("a burst of {0} is for a rate: a concurrency or a quota has none")]
    Burst(u64),
    /// Permits are neither taken in advance nor owed.
    #[error("a concurrency has neither a lease nor a debt")]
    ConcurrencyOption,
    /// The question is answered without a permit, so that none could be released.
    #[error("a concurrency needs a permit: `acquire` takes one")]
    NeedsPermit,
    /// The lease is too short to save a call, or so long that tokens would lie idle.
    #[error("a lease of {0:?} is outside 1 ms to 10 s")]
    Lease(Duration),
    /// A drained bucket would not be full again within ten years.
    #[error("capacity {capacity} at {rate} tokens per second takes over ten years to fill")]
    FillTime {
        /// The burst that was asked for.
        capacity: u32,
        /// The refill, in tokens per second.
        rate: f64,
    },
}
