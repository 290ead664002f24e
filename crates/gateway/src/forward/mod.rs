//! Forwards a request to an upstream and its answer to the client: attempts, retries, header fields and bodies.

pub(crate) mod body;
mod exchange;
pub(crate) mod headers;
mod outbound_request;
mod retries;
mod send_progress;
mod upgrade;

pub(crate) use exchange::{FailedExchange, ProxyExchange, UpstreamResponse};
pub(crate) use outbound_request::OutboundRequest;
pub(crate) use retries::RetryBudget;
pub(crate) use send_progress::SendProgress;
pub(crate) use upgrade::{UpgradeRequest, tunnel};
