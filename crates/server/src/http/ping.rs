//! The sample endpoint, which shows how any limited service behaves.

use std::net::SocketAddr;

use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use spile_listener::ClientBody;
use spile_tower::response;

use super::problem::Problem;
use super::reply::{HttpReply, reply};
use crate::auth::{self, Original, X_API_KEY};
use crate::decide::Decider;
use crate::openapi::Limited;

/// Answers `pong` to callers that have a token left. They are distinguished by `X-API-Key` as it is sent, or else by their
/// address; made-up keys of one address have ten times its plan between them.
#[utoipa::path(
    method(get, head),
    path = "/api/ping",
    tag = "decisions",
    operation_id = "ping",
    params((
        "X-API-Key" = Option<String>, Header, description = "The API key that pays; without one, the address pays.",
        format = "identity", nullable = false
    )),
    responses(Limited)
)]
pub(crate) async fn ping(
    decider: &Decider,
    peer: SocketAddr,
    request: Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Problem::wrong_method("GET, HEAD"));
    }
    let (parts, _unread) = request.into_parts();
    let in_force = decider.in_force();
    let original = Original::itself(&parts).map_err(|why| Problem::new(StatusCode::BAD_REQUEST, why))?;
    let facts = auth::facts(&parts, &original, peer, &in_force);
    let owed = in_force.policy.owed_by_api_key(&facts, &X_API_KEY);
    let (ruling, now) = (auth::allow(decider, &owed).await?, decider.wall_now());
    let mut headers = HeaderMap::new();
    if let Some(decision) = ruling.enforced.decision() {
        if !decision.allowed() {
            return Ok(response::refusal(decision, now).map(Full::new));
        }
        response::write_fields(decision, now, &mut headers);
    }
    Ok(reply(StatusCode::OK, headers, "application/json", "{\"message\":\"pong\"}"))
}
