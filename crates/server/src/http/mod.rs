//! The `http` listener: the decision API and the sample endpoint.

mod api;
mod body;
pub(crate) mod check;
mod host_check;
mod json;
pub(crate) mod permit;
pub(crate) mod ping;
mod problem;
mod reply;
pub(crate) mod reservation;

pub(crate) use api::Api;
pub(crate) use body::read_json;
pub(crate) use host_check::HostCheck;
pub(crate) use json::write_decision;
#[cfg(test)]
pub(crate) use json::{write_acquired, write_charge, write_refund, write_reservation, write_settled};
pub(crate) use problem::Problem;
pub(crate) use reply::HttpReply;

use http::Request;
use hyper::body::Body;
use spile_listener::{ClientBody, RequestOrigin, is_only_chunked};

/// True if a request is ambiguous: it may end in two places, or its body has a transfer coding that is not decoded here.
pub(crate) fn is_unclear(origin: RequestOrigin, request: &Request<ClientBody>) -> bool {
    // Only a body of unknown length can have a coding.
    origin.ambiguous || (request.body().size_hint().exact().is_none() && !is_only_chunked(request.headers()))
}
