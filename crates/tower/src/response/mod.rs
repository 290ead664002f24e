//! A decision as HTTP: status, header fields and bodies.
//!
//! Pure functions of a [`Decision`] and the wall-clock time at which it was made, so that the layer, the decision service and
//! the gateway answer alike. They read no clock and no request.
//!
//! ```
//! # mod spile { pub use spile_core::*; pub use spile_limiter::*; pub use spile_memory::*; pub use spile_tower::*; }
//! use spile::{Limit, MemoryStore, Micros, Plan, RateLimiter, response};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let free = Plan::new("free", Limit::per_minute(1))?;
//! let limiter = RateLimiter::builder().store(MemoryStore::new()).plans([free]).build();
//! limiter.allow("user:1", "free", 1).await?;
//!
//! let denied = limiter.allow("user:1", "free", 1).await?;
//! let answer = response::refusal(&denied, Micros::from_secs(1_765_469_725));
//! assert_eq!(answer.status(), 429);
//! assert_eq!(answer.headers()["retry-after"], "60");
//! assert_eq!(answer.headers()["ratelimit-policy"], "\"free\";q=1;w=60");
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use http::StatusCode;
use spile_core::{Decision, Micros, Reason};

mod body;
mod fields;
mod grpc;
mod holding_body;
mod problem;
mod refused;
mod reply_body;
mod text;
mod timestamp;

pub use body::{PROBLEM_JSON, UNAVAILABLE, body, refusal};
pub(crate) use fields::Rendered;
pub use fields::{HeaderFields, Reset, write_fields};
pub(crate) use grpc::grpc_problem;
pub use grpc::{grpc_refusal, is_grpc};
pub use holding_body::HoldingBody;
pub(crate) use problem::is_callers_fault;
pub use problem::{invalid, problem};
pub use refused::{Cause, RefusedRequest};
pub use reply_body::ReplyBody;
pub use timestamp::Rfc3339;

/// The status of the decision: 200, 429, or 503 if it was refused because the store failed.
pub fn status(decision: &Decision) -> StatusCode {
    match decision.reason() {
        _ if decision.allowed() => StatusCode::OK,
        Reason::FailClosed => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::TOO_MANY_REQUESTS,
    }
}

/// The value of `Retry-After`: whole seconds, rounded up and at least one. `None` if the request may proceed.
pub fn retry_after_secs(decision: &Decision) -> Option<u64> {
    (!decision.allowed()).then(|| secs_ceil(decision.retry_after()).max(1))
}

/// When the bucket of the binding limit is full again, by the caller's clock. For a quota that has been used, the end of its window:
/// the same moment, however long the answer was under way.
///
/// If the request was refused because the store failed, no bucket is known: then it is the moment to try again.
pub fn reset_at(decision: &Decision, now: Micros) -> Micros {
    let (after, failed) = (reset_after(decision), decision.reason() == Reason::FailClosed);
    let ends_window = decision.binding().limit().windows().is_some() && !after.is_zero() && !failed;
    if ends_window { decision.at() + after } else { now + after }
}

fn reset_after(decision: &Decision) -> Duration {
    if decision.reason() == Reason::FailClosed { decision.retry_after() } else { decision.reset_after() }
}

/// Whole seconds, rounded up.
fn secs_ceil(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}
