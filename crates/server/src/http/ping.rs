//! The sample endpoint: what any limited service looks like from outside.

use std::net::SocketAddr;

use http::{HeaderMap, Request, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use spile_core::Cost;
use spile_tower::client::PeerAddr;
use spile_tower::key::{ClientIp, Header, KeyResolver};
use spile_tower::response;

use super::problem::Problem;
use super::reply::{Reply, reply};
use crate::decider::Decider;
use crate::fault::Fault;
use crate::identity;
use crate::question::{self, Question};

const PLAN: &str = "free";

/// Answers `pong` to whoever has a token left: per `X-API-Key`, else per address.
pub(crate) async fn ping(
    decider: &Decider,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Reply, Problem> {
    let (mut parts, _unread) = request.into_parts();
    parts.extensions.insert(PeerAddr(peer));
    let caller = Header::api_key().resolve(&parts).or_else(|| ClientIp::direct().resolve(&parts));
    let caller =
        caller.ok_or_else(|| Fault::new("X-API-Key", "is missing, and so is the caller's address"))?;
    let key = identity::key(caller.as_str()).map_err(|why| Fault::new("X-API-Key", why))?;
    let charges = question::charges(key, [PLAN], Cost::ONE, &decider.policies())?;
    let decision = decider.check(Question::from(charges)).await;
    let now = decider.wall_now();
    if !decision.allowed() {
        return Ok(response::refusal(&decision, now).map(Full::new));
    }
    let mut headers = HeaderMap::new();
    response::write_fields(&decision, now, &mut headers);
    Ok(reply(StatusCode::OK, headers, "application/json", "{\"message\":\"pong\"}"))
}
