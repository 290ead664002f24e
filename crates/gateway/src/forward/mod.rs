//! Forwards a request to an upstream and its answer to the client: attempts, retries, header fields and bodies.

pub(crate) mod body;
mod exchange;
pub(crate) mod headers;
mod outbound_request;
mod retries;
mod tunnel;
mod upgrade;

pub(crate) use exchange::{Answer, Exchange};
pub(crate) use outbound_request::Errand;
pub(crate) use retries::RetryBudget;
pub(crate) use tunnel::carry;
pub(crate) use upgrade::Upgrade;
