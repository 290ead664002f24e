//! A limit: a capacity, a unit and a shape. Only limits within the bounds that keep the arithmetic exact can be built.

mod concurrency;
mod error;
mod quota;
mod rate;
mod text;
mod windows;

use std::fmt;
use std::time::Duration;

pub use self::concurrency::{Concurrency, ConcurrencyBuilder};
pub use self::error::LimitError;
pub use self::quota::{Quota, QuotaBuilder};
pub use self::rate::{Rate, RateBuilder};
pub use self::text::LimitTextError;
pub use self::windows::{QuotaWindows, Window, Windows};
use crate::{Amount, Cost, Unit};

/// A bound on usage: a capacity, its unit, and the shape that determines when tokens come back.
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
///
/// Each shape has its own builder, so that options of different shapes cannot be mixed:
///
/// ```compile_fail
/// # use std::time::Duration;
/// # use spile_core::Limit;
/// Limit::per_second(1).burst(3).hold(Duration::from_secs(9));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    capacity: Amount,
    unit: Unit,
    debt: Amount,
    shape: Shape,
}

/// When the tokens of a limit come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Continuously, at a rate.
    Rate(Rate),
    /// When the next window of a calendar starts.
    Quota(Quota),
    /// When a permit is released or expires.
    Concurrency(Concurrency),
}

impl Shape {
    /// A number from 1 to 3. The shape is part of a bucket's identity, and stores keep it as this number.
    pub const fn code(&self) -> u64 {
        match self {
            Self::Rate(_) => Self::RATE,
            Self::Quota(_) => Self::QUOTA,
            Self::Concurrency(_) => Self::CONCURRENCY,
        }
    }

    /// The [code](Self::code) of rates.
    pub const RATE: u64 = 1;
    /// The [code](Self::code) of quotas.
    pub const QUOTA: u64 = 2;
    /// The [code](Self::code) of concurrencies.
    pub const CONCURRENCY: u64 = 3;
}

impl Limit {
    /// The most tokens that a bucket holds, and the most that come back in a period.
    pub const MAX_TOKENS: u32 = 1_000_000_000;
    /// [`MAX_TOKENS`](Self::MAX_TOKENS) as an amount.
    pub const MAX_AMOUNT: Amount = Amount::from_tokens(Self::MAX_TOKENS);
    /// The shortest and the longest lease.
    pub const LEASES: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
    /// The shortest and the longest hold time of a permit.
    pub const HOLDS: std::ops::RangeInclusive<Duration> =
        Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);
    /// The hold time of a permit unless [`ConcurrencyBuilder::hold`] sets another.
    pub const DEFAULT_HOLD: Duration = Duration::from_secs(30);
    /// The most permits of a concurrency.
    pub const MAX_PERMITS: u32 = 1_000_000;
    /// The fastest refill, in tokens per second.
    pub const MAX_RATE: f64 = 1e9;
    /// The longest time in which a drained bucket may fill: ten years.
    pub const MAX_FILL: Duration = Duration::from_secs(10 * 365 * 86_400 + 3 * 86_400);

    /// `tokens` come back every second. The burst is the same number unless [`RateBuilder::burst`] sets another.
    pub fn per_second(tokens: impl Into<Amount>) -> RateBuilder {
        Self::per(tokens, Duration::from_secs(1))
    }

    /// `tokens` come back every minute.
    pub fn per_minute(tokens: impl Into<Amount>) -> RateBuilder {
        Self::per(tokens, Duration::from_secs(60))
    }

    /// `tokens` come back every hour.
    pub fn per_hour(tokens: impl Into<Amount>) -> RateBuilder {
        Self::per(tokens, Duration::from_secs(3_600))
    }

    /// `tokens` come back every day of 24 hours.
    pub fn per_day(tokens: impl Into<Amount>) -> RateBuilder {
        Self::per(tokens, Duration::from_secs(86_400))
    }

    /// `tokens` come back every `period`, evenly: one token each `period / tokens`, not all at its end.
    pub fn per(tokens: impl Into<Amount>, period: Duration) -> RateBuilder {
        RateBuilder::new(tokens.into(), period)
    }

    /// A quota: `tokens` in each of these windows, spent at any time within the window.
    pub fn per_window(tokens: impl Into<Amount>, windows: QuotaWindows) -> QuotaBuilder {
        QuotaBuilder::new(tokens.into(), windows)
    }

    /// A concurrency: at most `permits` held at once. Each is held until it is released, or until its [hold
    /// time](ConcurrencyBuilder::hold) has passed since it was last renewed.
    pub const fn concurrent(permits: u64) -> ConcurrencyBuilder {
        ConcurrencyBuilder::new(permits)
    }

    /// The most that can be spent at once. For a concurrency the number of its permits, as tokens.
    pub const fn capacity(&self) -> Amount {
        self.capacity
    }

    /// The unit of its amounts.
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// The smallest amount of the unit, which must be available for a cost of zero to pass.
    pub const fn quantum(&self) -> Amount {
        self.unit.quantum()
    }

    /// When its tokens come back.
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The rate. `None` for another shape.
    pub const fn rate(&self) -> Option<&Rate> {
        if let Shape::Rate(rate) = &self.shape { Some(rate) } else { None }
    }

    /// The windows of a quota. `None` for another shape.
    pub const fn windows(&self) -> Option<QuotaWindows> {
        if let Shape::Quota(quota) = &self.shape { Some(quota.windows()) } else { None }
    }

    /// How long a permit of a concurrency is held unless it is renewed or released. `None` for another shape.
    pub const fn hold(&self) -> Option<Duration> {
        if let Shape::Concurrency(concurrency) = &self.shape { Some(concurrency.hold()) } else { None }
    }

    /// True if it limits the number of requests in progress, and so needs a permit.
    pub const fn is_concurrency(&self) -> bool {
        matches!(self.shape, Shape::Concurrency(_))
    }

    /// How long an instance may keep tokens that it took from a shared store in advance. `None` if every decision asks the store.
    pub const fn lease(&self) -> Option<Duration> {
        if let Shape::Rate(rate) = &self.shape { rate.lease() } else { None }
    }

    /// Returns the limit without a lease, so that every decision asks the store.
    #[must_use]
    pub const fn without_lease(mut self) -> Self {
        if let Shape::Rate(rate) = &mut self.shape {
            rate.lease_us = 0;
        }
        self
    }

    /// How much late charges may take beyond what is available: the capacity unless set, zero for a concurrency.
    pub const fn debt(&self) -> Amount {
        self.debt
    }

    /// True if both have the same capacity and the same rate, windows or hold time. Ignores leases, debts and units.
    pub fn fills_like(&self, other: &Self) -> bool {
        let as_fast = match (self.shape, other.shape) {
            (Shape::Rate(own), Shape::Rate(other)) => {
                own.per_second().to_bits() == other.per_second().to_bits()
            }
            (own, other) => own == other,
        };
        self.capacity == other.capacity && as_fast
    }

    /// The cost of a request under this limit: always one permit for a concurrency.
    pub(crate) const fn taken_by(&self, cost: Cost) -> Cost {
        if self.is_concurrency() { Cost::ONE } else { cost }
    }

    /// The amount that a bucket must have to cover this cost: the cost, or the quantum if it is zero.
    pub const fn asked(&self, cost: Cost) -> Amount {
        if cost.amount().micro() == 0 { self.quantum() } else { cost.amount() }
    }

    /// True if `available` covers the cost. Stores, leases, the deny cache and peeks all decide by this comparison, so that a cost
    /// of zero gets the same answer from each.
    pub const fn is_covered(&self, cost: Cost, available: Amount) -> bool {
        available.micro() >= self.asked(cost).micro()
    }

    /// True if a request of this cost can ever pass.
    pub const fn can_cover(&self, cost: Cost) -> bool {
        self.taken_by(cost).amount().micro() <= self.capacity.micro()
    }

    /// The time in which a drained bucket is full again, rounded up. For a quota its longest window, for a concurrency the hold
    /// time of a permit.
    pub fn fill_time(&self) -> Duration {
        match &self.shape {
            Shape::Rate(rate) => Duration::from_micros(rate.time_to_gain_us(self.capacity.micro())),
            Shape::Quota(quota) => quota.windows().longest(),
            Shape::Concurrency(concurrency) => concurrency.hold(),
        }
    }

    /// The limit under which charges under `former` are settled: this one, or `former` if the shapes differ. Of two rates, the slower
    /// refill applies, so that the time since the charge mints no tokens.
    #[must_use]
    pub fn settling(&self, former: &Self) -> Self {
        match (self.rate(), former.rate()) {
            (Some(own), Some(rate)) if rate.per_second() < own.per_second() => {
                self.resized(self.capacity, rate.refill(), rate.period()).unwrap_or(*former)
            }
            _ if self.shape.code() == former.shape.code() => *self,
            _ => *former,
        }
    }

    /// Returns the limit for one of `replicas` instances that each enforce their share: capacity and refill are divided, and the
    /// capacity never falls below one quantum. A share that would take longer than [`MAX_FILL`](Self::MAX_FILL) to fill is filled
    /// in that time.
    #[must_use]
    pub fn share_of(&self, replicas: u32) -> Self {
        let replicas = i64::from(replicas.max(1));
        let part = |amount: Amount| Amount::from_micro(amount.micro() / replicas).floored_to(self.quantum());
        let capacity = part(self.capacity).max(self.quantum());
        let debt = if self.debt == self.capacity { capacity } else { part(self.debt) };
        let shape = match self.shape {
            Shape::Rate(rate) => Shape::Rate(rate.share_of(replicas.unsigned_abs(), capacity)),
            shape => shape,
        };
        Self { capacity, debt, shape, ..*self }
    }

    /// Returns the limit with this capacity and, if it is a rate, this refill per period. A debt that equals the capacity follows
    /// it.
    pub fn resized(&self, capacity: Amount, refill: Amount, period: Duration) -> Result<Self, LimitError> {
        let (unit, debt) = (self.unit, (self.debt != self.capacity).then_some(self.debt));
        match self.shape {
            Shape::Rate(rate) => {
                let lease = rate.lease();
                RateBuilder { capacity, unit, lease, debt, ..RateBuilder::new(refill, period) }.build()
            }
            Shape::Quota(quota) => {
                QuotaBuilder { unit, debt, ..QuotaBuilder::new(capacity, quota.windows()) }.build()
            }
            Shape::Concurrency(concurrency) => {
                ConcurrencyBuilder::new(capacity.whole_tokens()).hold(concurrency.hold()).build()
            }
        }
    }

    /// Returns the capacity if it is within the bounds.
    fn bounded(capacity: Amount, unit: Unit) -> Result<Amount, LimitError> {
        let least = unit.quantum();
        let is_bounded = (least..=Self::MAX_AMOUNT).contains(&capacity);
        is_bounded.then_some(capacity).ok_or(LimitError::Capacity { capacity, least })
    }

    /// Returns the limit with this debt, by default its capacity, if the debt is within the bounds.
    fn with_debt(self, debt: Option<Amount>) -> Result<Self, LimitError> {
        let debt = debt.unwrap_or(self.capacity);
        let is_repaid_soon = self.rate().is_none_or(|rate| rate.gains_in_time(debt));
        let is_bounded = (Amount::ZERO..=Self::MAX_AMOUNT).contains(&debt) && is_repaid_soon;
        is_bounded.then_some(Self { debt, ..self }).ok_or(LimitError::Debt(debt))
    }
}

/// Lets a plan take builders.
macro_rules! builds {
    ($($builder:ty),*) => {$(
        impl TryFrom<$builder> for Limit {
            type Error = LimitError;

            fn try_from(builder: $builder) -> Result<Self, LimitError> {
                builder.build()
            }
        }
    )*};
}

builds!(RateBuilder, QuotaBuilder, ConcurrencyBuilder);

impl fmt::Display for Limit {
    /// Prints as `capacity, refill/period`, such as `10, 1/s`; a quota as `capacity per window`, such as `1000 per month in
    /// Europe/Berlin`; a concurrency as `capacity at once, held 30s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Shape::Rate(rate) => write!(f, "{}, {rate}", self.capacity),
            Shape::Quota(quota) => write!(f, "{} per {}", self.capacity, quota.windows()),
            Shape::Concurrency(concurrency) => write!(f, "{} at once, held {concurrency}", self.capacity),
        }
    }
}

/// Writes a duration in the largest unit of which it is a multiple: `30s`, `250ms`.
fn write_span(f: &mut fmt::Formatter<'_>, us: u64) -> fmt::Result {
    match us {
        us if us % 1_000_000 == 0 => write!(f, "{}s", us / 1_000_000),
        us if us % 1_000 == 0 => write!(f, "{}ms", us / 1_000),
        us => write!(f, "{us}us"),
    }
}
