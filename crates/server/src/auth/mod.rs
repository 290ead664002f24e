//! Forward-auth: a proxy asks whether a request may pass, and reads the answer from its status and header fields.

mod original;
mod passage;

use std::net::SocketAddr;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use spile_limiter::Ruling;
use spile_listener::ClientBody;
use spile_tower::response;

pub(crate) use original::Original;
pub(crate) use passage::{X_API_KEY, allow, facts};

use crate::config::ProxyKind;
use crate::decide::{ActivePolicy, Decider};
use crate::http::{HttpReply, Problem};
use crate::input::fault::Fault;
use crate::openapi::{self, Forwarded};

/// The path before the id of a rule.
pub(crate) const PREFIX: &str = "/v1/auth/";
const DENY_STATUS: &str = "denyStatus";

/// Checks the host and origin of a request, unless it comes from a trusted proxy: they are then the client's, and may have any value.
pub(crate) fn exempt<B>(
    decider: &Decider,
    peer: SocketAddr,
    request: &Request<B>,
    check: impl FnOnce() -> Result<(), Problem>,
) -> Result<(), Problem> {
    let path = request.uri().path();
    let is_auth = path.starts_with(PREFIX) || path == PREFIX.trim_end_matches('/');
    if is_auth && is_trusted(peer, &decider.in_force()) { Ok(()) } else { check() }
}

/// The query of forward-auth.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the query is read by hand: a proxy may append what it likes")]
struct DenyStatus {
    /// The status of a denial, for proxies that do not understand 429.
    #[param(rename = "denyStatus", nullable = false, minimum = 400, maximum = 499)]
    deny_status: Option<u16>,
}

/// Asks the rule that the path names.
#[utoipa::path(
    method(get, head, post, put, patch, delete, options, trace),
    path = "/v1/auth/{ruleId}",
    tag = "decisions",
    operation_id = "authByRule",
    params(
        ("ruleId" = String, Path, description = "The rule to ask.",
         min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$", format = "rule-id"),
        DenyStatus
    ),
    responses(Forwarded, openapi::Missing)
)]
pub(crate) async fn by_rule(
    decider: &Decider,
    peer: SocketAddr,
    request: Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    let in_force = decider.in_force();
    let deny_status = match in_force.forward_auth.proxy {
        // The query that Envoy sends is the client's.
        Some(ProxyKind::Envoy) => None,
        _ => deny_status(request.uri())?,
    };
    let (parts, _unread) = request.into_parts();
    let asked = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    // Envoy appends the path of the request to the one that it asks.
    let (id, original) = match (in_force.forward_auth.proxy, asked.split_once('/')) {
        (Some(ProxyKind::Envoy), Some((id, _))) => (id, Original::below(&parts, below(&parts.uri, id))),
        (Some(ProxyKind::Envoy), None) => (asked, Original::below(&parts, "")),
        _ => (asked, original(&parts, peer, &in_force)),
    };
    let original = original.map_err(|why| unclear(why, deny_status))?;
    let Some(owed) = in_force.policy.owed_by_rule(id, &facts(&parts, &original, peer, &in_force)) else {
        return Err(
            Problem::new(StatusCode::NOT_FOUND, "ruleId: no rule has this id").with("field", "ruleId")
        );
    };
    Ok(verdict(decider, &allow(decider, &owed).await?, deny_status))
}

/// Asks the most specific rule that matches the original request, or else the rule `default`.
#[utoipa::path(
    method(get, head, post, put, patch, delete, options, trace),
    path = "/v1/auth",
    tag = "decisions",
    operation_id = "authByMatch",
    params(DenyStatus),
    responses(Forwarded)
)]
pub(crate) async fn by_match(
    decider: &Decider,
    peer: SocketAddr,
    request: Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    let deny_status = deny_status(request.uri())?;
    let (parts, _unread) = request.into_parts();
    let in_force = decider.in_force();
    let original = original(&parts, peer, &in_force).map_err(|why| unclear(why, deny_status))?;
    if !original.is_whole && is_trusted(peer, &in_force) {
        let why =
            "the proxy has to say both the method and the URI of the request that it asks about".to_owned();
        return Err(unclear(why, deny_status));
    }
    let owed = in_force.policy.owed(&facts(&parts, &original, peer, &in_force));
    Ok(verdict(decider, &allow(decider, &owed).await?, deny_status))
}

/// The request in question. Only a trusted proxy may describe one; descriptions by other peers are ignored.
fn original(question: &Parts, peer: SocketAddr, in_force: &ActivePolicy) -> Result<Original, String> {
    if is_trusted(peer, in_force) {
        Original::described(question, in_force.forward_auth.proxy)
    } else {
        Original::itself(question)
    }
}

fn is_trusted(peer: SocketAddr, in_force: &ActivePolicy) -> bool {
    in_force.clients.trusted_proxies.contain(peer.ip())
}

/// The path below the rule's id, with the query.
fn below<'u>(uri: &'u Uri, id: &str) -> &'u str {
    let asked = uri.path_and_query().map_or("", PathAndQuery::as_str);
    asked.get(PREFIX.len() + id.len()..).unwrap_or_default()
}

/// Refuses an ambiguous request with the proxy's `denyStatus`, if it set one.
fn unclear(why: String, deny_status: Option<StatusCode>) -> Problem {
    Problem::new(deny_status.unwrap_or(StatusCode::BAD_REQUEST), why).with("field", "path")
}

fn verdict(decider: &Decider, ruling: &Ruling, deny_status: Option<StatusCode>) -> HttpReply {
    let Some(decision) = ruling.enforced.decision() else { return HttpReply::default() };
    let now = decider.wall_now();
    if decision.allowed() {
        let mut reply = HttpReply::default();
        response::write_fields(decision, now, reply.headers_mut());
        return reply;
    }
    let mut refusal = response::refusal(decision, now).map(Full::new);
    if let Some(status) = deny_status {
        *refusal.status_mut() = status;
    }
    refusal
}

/// The status of a denial. nginx understands only 401 and 403.
fn deny_status(uri: &Uri) -> Result<Option<StatusCode>, Fault> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let mut found = None;
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name != DENY_STATUS {
            // A proxy may append parameters for its purposes.
            continue;
        }
        let status = value.parse().ok().filter(StatusCode::is_client_error);
        found = Some(status.ok_or_else(|| Fault::new(DENY_STATUS, "takes a status from 400 to 499"))?);
    }
    Ok(found)
}
