//! Header fields in transit: those that are removed from a message, and those that the gateway adds to it.

pub(crate) mod equivalent_names;
mod forwarded;
mod forwarding_headers;
mod hop_by_hop;
mod request_id;
pub(crate) mod sanitize;

pub(crate) use forwarding_headers::ForwardingHeaders;
pub(crate) use hop_by_hop::requested_upgrade;
pub(crate) use request_id::RequestId;
