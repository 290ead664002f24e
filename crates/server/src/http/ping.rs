//! The sample endpoint: what any limited service looks like from outside.

use std::net::SocketAddr;

use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use spile_tower::client::PeerAddr;
use spile_tower::response;

use super::passage;
use super::problem::Problem;
use super::reply::{Reply, reply};
use crate::decider::Decider;
use crate::openapi::Limited;

/// Answers `pong` to whoever has a token left under the rule that matches the request best.
#[utoipa::path(
    method(get, head),
    path = "/api/ping",
    tag = "decisions",
    operation_id = "ping",
    params((
        "X-API-Key" = Option<String>, Header, description = "Who pays, or whose tenant does; else the address.",
        format = "identity", nullable = false
    )),
    responses(Limited)
)]
pub(crate) async fn ping(
    decider: &Decider,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Reply, Problem> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Problem::wrong_method("GET, HEAD"));
    }
    let (mut parts, _unread) = request.into_parts();
    parts.extensions.insert(PeerAddr(peer));
    let policies = decider.policies();
    let mut headers = HeaderMap::new();
    if let Some(rule) = policies.rule_for(&parts.method, parts.uri.path()) {
        let decision = passage::decide(decider, &policies, rule, parts).await?;
        let now = decider.wall_now();
        if !decision.allowed() {
            return Ok(response::refusal(&decision, now).map(Full::new));
        }
        response::write_fields(&decision, now, &mut headers);
    }
    Ok(reply(StatusCode::OK, headers, "application/json", "{\"message\":\"pong\"}"))
}
