//! The `http` listener: the decision API and the sample endpoint.

mod api;
mod body;
pub(crate) mod check;
mod host_check;
mod json;
pub(crate) mod ping;
mod problem;
mod reply;
mod unclear;

pub(crate) use api::Api;
pub(crate) use body::read_json;
pub(crate) use host_check::HostCheck;
pub(crate) use json::write_decision;
#[cfg(test)]
pub(crate) use json::write_refund;
pub(crate) use problem::Problem;
pub(crate) use reply::HttpReply;
pub(crate) use unclear::is_unclear;
