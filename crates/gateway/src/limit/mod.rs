//! Limits of three kinds: rate limits of the policy, adaptive limits that follow the health of upstreams, and caps on
//! the requests in flight at each upstream.

mod adaptive;
mod answer_costs;
mod caller_key;
mod fair_queue;
mod rate;

pub use adaptive::Adaptive;
pub use fair_queue::Concurrency;

pub(crate) use adaptive::AdaptiveLimit;
pub(crate) use answer_costs::AnswerCosts;
pub(crate) use caller_key::CallerKey;
pub(crate) use fair_queue::{FairQueue, UpstreamPermit, acquire_any};
pub(crate) use rate::{RateDecision, RateLimits};
