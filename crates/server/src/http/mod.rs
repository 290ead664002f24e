//! The `http` listener: the decision API and the sample endpoint.

mod api;
mod auth;
mod body;
mod check;
mod json;
mod original;
mod passage;
mod ping;
mod problem;
mod reply;

pub(crate) use api::Api;
pub(crate) use json::write_decision;
pub(crate) use problem::Problem;
pub(crate) use reply::Reply;
