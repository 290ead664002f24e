//! A token-bucket rate limiter for Rust services: the same exact decision in one process or across many.
//!
//! Two lines limit each user to ten requests a second, and twenty at once:
//!
//! ```
//! use spile::{Limit, RateLimiter};
//!
//! let limiter = RateLimiter::per_key(Limit::per_second(10).burst(20))?;
//! assert!(limiter.check("user:123")?.allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Plans and stores
//!
//! A **limit** is how much may be spent at once, and how fast it comes back. A **plan** is a named list of limits. A **store**
//! holds the buckets: in this process, or in Redis for all instances of a service.
//!
//! ```
//! use spile::{Limit, MemoryStore, Plan, RateLimiter};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = RateLimiter::builder()
//!     .store(MemoryStore::new())
//!     .plans([
//!         Plan::new("free", Limit::per_second(1).burst(10))?,
//!         Plan::new("daily", Limit::per_day(10_000))?,
//!     ])
//!     .build();
//!
//! let decision = limiter.allow("user:123", "free", 1).await?;
//! assert!(decision.allowed());
//! assert_eq!(decision.remaining(), 9);
//!
//! // Several plans are one decision: all of them are charged, or none is.
//! let both = limiter.allow("user:123", ["free", "daily"], 3).await?;
//! assert_eq!(both.remaining(), 6);
//! # Ok(())
//! # }
//! ```
//!
//! | to | call |
//! |---|---|
//! | spend, or be denied | [`allow`](RateLimiter::allow), or [`try_allow`](RateLimiter::try_allow) without a future |
//! | see what is left | [`peek`](RateLimiter::peek) |
//! | take what is there | [`spend_up_to`](RateLimiter::spend_up_to) |
//! | give back | [`refund`](RateLimiter::refund), [`refund_once`](RateLimiter::refund_once) |
//! | charge what is known later | [`charge`](RateLimiter::charge), [`reserve`](RateLimiter::reserve) and [`settle`](Reservation::settle) |
//! | start over | [`reset`](RateLimiter::reset) |
//! | wait for a turn | [`until_ready`](RateLimiter::until_ready) |
//! | hold one of N places | [`acquire`](RateLimiter::acquire), [`acquire_when_ready`](RateLimiter::acquire_when_ready) |
//!
//! # Features
//!
//! Features only add.
//!
//! | feature | brings |
//! |---|---|
//! | `memory` (default) | [`MemoryStore`]: buckets in this process |
//! | `redis` | [`RedisStore`]: buckets in Redis or Valkey, shared by every instance |
//! | `tower` | [`RateLimitLayer`] for any tower HTTP stack, the resolvers in [`key`], the answers in [`response`] |
//! | `axum`, `tonic` | the same with the bodies, peers and routes of axum and tonic |
//! | `calendar` | quotas by the calendar: [`CalendarLimit`] gives [`Limit`] a `quota` |
//! | `macros` | the attribute [`macro@rate_limit`] |
//! | `observe` | [`Watch`]: metrics, heavy hitters and events of every decision |
//!
//! With `memory` and `redis`, [`open_store`] makes the store that a URL names.
//!
//! The names come from several crates, and this one brings them together. It adds no logic except for what the
//! attribute needs.

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(feature = "memory", feature = "redis"))]
mod any_store;
#[cfg(feature = "macros")]
pub mod attribute;
#[cfg(feature = "macros")]
mod exceeded;
#[cfg(feature = "macros")]
mod global;

pub use spile_core::{
    Amount, AmountTextError, Answer, Bucket, Charge, ChargeError, ChargeOutcome, Charges, Clock, Concurrency,
    ConcurrencyBuilder, Cost, CostError, Currency, Decision, DecisionSource, EitherStore, EmbeddedStore,
    FailurePolicy, FailureReason, FakeClock, HeldPermit, InMemoryPlans, Inspect, Kept, Key, KeyError, Limit,
    LimitError, LimitName, LimitStatus, LimitTextError, Micros, NameError, NamedLimit, OneOrMany, Operation,
    Outcome, PartialOutcome, PermitId, PermitIdError, PermitSet, PermitStep, Plan, PlanError, PlanName,
    PlanRegistry, Quota, QuotaBuilder, QuotaWindows, Rate, RateBuilder, Reason, RefundId, RefundIdError,
    RefundOutcome, Reply, ReservationId, ReservationTtlError, SettleOutcome, Shape, SlewedClock, SpendTime,
    Spent, Store, StoreError, StoreExt, SystemClock, Unit, UnknownPolicy, UnknownUnit, Verdict, Window,
    Windows,
};
pub use spile_limiter::{
    AcquireError, Ask, AskedCharges, ChargeDecision, DecisionCounts, EnforcedDecision, KeyedLimiter,
    LimiterError, Observed, Observer, PartialDecision, Permit, PermitCounts, PermitStats, PlanList,
    RateLimiter, RateLimiterBuilder, RefundDecision, Reservation, RuleName, Ruling, Series, SettleError,
    Settled, ShadowDecision, StoreCallError, TokioClock, UnknownPlan, Wait,
};
pub use spile_policy::{BucketCharge, Chain, Enforced, Owed, PolicyRefusal, ResolvedKey};
pub use spile_runtime::Runtime;

#[cfg(feature = "memory")]
pub use spile_memory::{self as memory, MemoryStore};

/// Quotas by the calendar: `Limit::quota(100_000).per_month()`.
#[cfg(feature = "calendar")]
pub use spile_calendar::{
    self as calendar, Anchor, AnchorError, Calendar, CalendarLimit, CalendarQuota, Period, UnknownPeriod,
    UnknownZone,
};

#[cfg(feature = "redis")]
pub use spile_redis::{self as redis, RedisStore};

#[cfg(feature = "tower")]
pub use spile_tower::{
    self as tower, Admission, Cause, Keyless, PlanNames, PlanResolver, PlansBy, RateLimit, RateLimitLayer,
    RefusedRequest, ReplyBody, ResponseFuture, Rule, TenantPlan, client, cost, key, response,
};

/// An observer of every decision, and what it shows.
///
/// [`Watch`] lets the limiter count for it, and hands metrics to the [`metrics`](https://docs.rs/metrics) facade, so that any
/// recorder shows them.
///
/// ```
/// use spile::{Limit, MemoryStore, Plan, RateLimiter, Watch};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let watch = Watch::builder().build();
/// let limiter = RateLimiter::builder()
///     .store(MemoryStore::new())
///     .plans([Plan::new("free", Limit::per_second(1).burst(1))?])
///     .observer(watch.clone())
///     .build();
/// for _ in 0..3 {
///     let _decision = limiter.try_allow("user:123", "free", 1)?;
/// }
/// assert_eq!(watch.snapshot().totals.denied, 2);
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "observe")]
pub use spile_observe as observe;
#[cfg(feature = "observe")]
pub use spile_observe::Watch;

#[cfg(all(feature = "memory", feature = "redis"))]
pub use any_store::{AnyStore, open_store};
#[cfg(feature = "macros")]
pub use exceeded::RateLimitExceeded;
#[cfg(feature = "macros")]
pub use global::{AlreadySet, set_global_limiter};

/// Lets an async function or method run only if its caller may spend the tokens.
///
/// ```
/// use spile::{Limit, MemoryStore, Plan, RateLimitExceeded, RateLimiter, rate_limit};
///
/// struct Reports {
///     limiter: RateLimiter<MemoryStore>,
/// }
///
/// impl Reports {
///     #[rate_limit(key = format!("user:{user_id}"), plan = "gold", tokens = pages, limiter = self.limiter)]
///     async fn print(&self, user_id: u64, pages: u64) -> Result<String, RateLimitExceeded> {
///         Ok(format!("{pages} pages"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gold = Plan::new("gold", Limit::per_minute(100))?;
/// let limiter = RateLimiter::builder().store(MemoryStore::new()).plans([gold]).build();
/// let reports = Reports { limiter };
/// assert_eq!(reports.print(7, 80).await?, "80 pages");
///
/// let refused = reports.print(7, 80).await.unwrap_err();
/// assert!(refused.retry_after().is_some());
/// # Ok(())
/// # }
/// ```
///
/// | argument | is | without it |
/// |---|---|---|
/// | `key` | who pays: any expression over the arguments that can be displayed | an error |
/// | `plan` | the name of a plan, as any expression that reads as `&str` | give `plans` |
/// | `plans` | several plans, all charged or none: `["gold", "daily"]` | give `plan` |
/// | `concurrency` | the plan of a permit, which is held while the function runs | no permit is taken |
/// | `tokens` | what a call costs, as any expression that is a `u64` | 1 |
/// | `limiter` | which limiter decides, as any expression: `self.limiter` | the one given to [`set_global_limiter`] |
///
/// A permit is taken together with the tokens of the plans, or neither is. It ends when the function returns or panics, or when
/// its future is dropped:
///
/// ```
/// use spile::{MemoryStore, RateLimitExceeded, RateLimiter, rate_limit};
///
/// #[rate_limit(key = user, plan = "daily", concurrency = "exports", limiter = limiter)]
/// async fn export(limiter: &RateLimiter<MemoryStore>, user: &str) -> Result<String, RateLimitExceeded> {
///     Ok(format!("everything of {user}"))
/// }
/// ```
///
/// The function returns `Result<_, E>`, where `E` implements `From<RateLimitExceeded>`. A call that is over a limit
/// returns that error before any of the function's body runs. Two functions with the same key and plan share a
/// bucket; put the function's name into the key if they should not.
#[cfg(feature = "macros")]
pub use spile_macros::rate_limit;

/// The README and the guide's pages, so that their code is compiled and run with the tests.
#[cfg(doctest)]
mod guide {
    macro_rules! page {
        ($name:ident, $file:literal) => {
            #[doc = include_str!(concat!("../../../docs/guide/", $file))]
            pub struct $name;
        };
    }

    page!(QuickStart, "quick-start.md");
    page!(ChoosingAKey, "choosing-a-key.md");
    page!(PlansAndChains, "plans-and-chains.md");
    page!(RatesAndQuotas, "rates-and-quotas.md");
    page!(Concurrency, "concurrency.md");
    page!(LanguageModels, "language-models.md");
    page!(FailurePolicies, "failure-policies.md");
    page!(TestingYourLimits, "testing-your-limits.md");
    page!(MovingFromGovernor, "moving-from-governor.md");
    page!(RunningWithRedis, "redis.md");
    page!(Observability, "observability.md");
    page!(CustomStore, "custom-store.md");

    #[doc = include_str!("../../../README.md")]
    pub struct Readme;
}
