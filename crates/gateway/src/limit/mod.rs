//! Limits of three kinds: rate limits of the policy, adaptive limits that follow the health of upstreams, and caps on
//! the requests in flight at each upstream.

mod adaptive;
mod answer_costs;
mod caller_key;
mod detached;
mod fair_queue;
mod rate;

pub use adaptive::Adaptive;
pub use detached::DetachedBounds;
pub use fair_queue::RouteConcurrency;

pub(crate) use adaptive::AdaptiveLimit;
pub(crate) use answer_costs::AnswerCosts;
pub(crate) use caller_key::CallerKey;
pub(crate) use detached::{DetachedExchange, DetachedExchanges, Detachment, MAX_DETACHED_BYTES};
pub(crate) use fair_queue::{FairQueue, UpstreamPermit, acquire_any};
pub(crate) use rate::{AnswerPrice, RateDecision, RateLimits};
