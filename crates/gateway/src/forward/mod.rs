//! One request on its way to an upstream and back: header fields, attempts and what may be tried again.

mod errand;
mod exchange;
pub(crate) mod fields;
mod forwarded;
mod hop;
mod hop_by_hop;
mod introduction;
mod request_id;
mod retries;
pub(crate) mod spelling;
mod tunnel;
mod upgrade;

pub(crate) use errand::Errand;
pub(crate) use exchange::{Answer, Exchange};
pub(crate) use hop::{Hop, Trust};
pub(crate) use introduction::Introduction;
pub(crate) use request_id::RequestId;
pub(crate) use retries::RetryBudget;
pub(crate) use tunnel::carry;
pub(crate) use upgrade::Upgrade;
