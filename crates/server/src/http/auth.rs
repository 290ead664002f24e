//! Forward-auth: a proxy asks whether a request may pass, and gets an answer without a body to speak of.

use std::net::SocketAddr;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use spile_core::Decision;
use spile_gateway::CleanPath;
use spile_tower::client::PeerAddr;
use spile_tower::response;

use super::problem::Problem;
use super::reply::Reply;
use super::{original, passage};
use crate::decider::Decider;
use crate::fault::Fault;
use crate::openapi::{self, Forwarded};
use crate::policies::Policies;

/// What stands before the id of a rule.
pub(crate) const PREFIX: &str = "/v1/auth/";
const DENY_STATUS: &str = "denyStatus";

/// How "no" is said.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the query is read by hand: a proxy may append what it likes")]
struct DenyStatus {
    /// The status that stands for "no", for proxies that understand no 429.
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
    request: Request<Incoming>,
) -> Result<Reply, Problem> {
    let deny_status = deny_status(request.uri())?;
    let policies = decider.policies();
    let id = request.uri().path().strip_prefix(PREFIX).unwrap_or_default();
    let Some(rule) = policies.rule(id) else {
        return Err(
            Problem::new(StatusCode::NOT_FOUND, "ruleId: no rule has this id").with("field", "ruleId")
        );
    };
    let (parts, _) = described(request, peer, &policies, deny_status)?;
    let decision = passage::decide(decider, &policies, rule, parts).await?;
    Ok(verdict(decider, &decision, deny_status))
}

/// Asks the most specific rule that matches the original request. What no rule matches is not limited.
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
    request: Request<Incoming>,
) -> Result<Reply, Problem> {
    let deny_status = deny_status(request.uri())?;
    let policies = decider.policies();
    let (parts, path) = described(request, peer, &policies, deny_status)?;
    let Some(rule) = policies.rule_for(&parts.method, path.matched()) else {
        return Ok(Response::default());
    };
    let decision = passage::decide(decider, &policies, rule, parts).await?;
    Ok(verdict(decider, &decision, deny_status))
}

/// The request that the proxy asks about, and its path with one reading: another spelling gets around no rule and into
/// no other bucket. What can be read in two ways is refused, in the proxy's own word for "no" where it has one.
fn described(
    request: Request<Incoming>,
    peer: SocketAddr,
    policies: &Policies,
    deny_status: Option<StatusCode>,
) -> Result<(Parts, CleanPath), Problem> {
    let (mut parts, _unread) = request.into_parts();
    parts.extensions.insert(PeerAddr(peer));
    original::restore(&mut parts, &policies.trusted_proxies);
    let slash = PathAndQuery::from_static("/");
    let asked = parts.uri.path_and_query().unwrap_or(&slash);
    let path = CleanPath::of(asked).map_err(|unclear| {
        let status = deny_status.unwrap_or(StatusCode::BAD_REQUEST);
        Problem::new(status, format!("path: {unclear}")).with("field", "path")
    })?;
    if let Ok(clean) = path.forwarded().parse() {
        parts.uri = clean;
    }
    Ok((parts, path))
}

fn verdict(decider: &Decider, decision: &Decision, deny_status: Option<StatusCode>) -> Reply {
    let now = decider.wall_now();
    if decision.allowed() {
        let mut reply = Reply::default();
        let mut headers = HeaderMap::new();
        response::write_fields(decision, now, &mut headers);
        *reply.headers_mut() = headers;
        return reply;
    }
    let mut refusal = response::refusal(decision, now).map(Full::new);
    if let Some(status) = deny_status {
        *refusal.status_mut() = status;
    }
    refusal
}

/// The status that stands for "no". nginx understands 401 and 403 only.
fn deny_status(uri: &Uri) -> Result<Option<StatusCode>, Fault> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let mut found = None;
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name != DENY_STATUS {
            // What a proxy appends to its question is its own affair.
            continue;
        }
        let status = value.parse().ok().filter(StatusCode::is_client_error);
        found = Some(status.ok_or_else(|| Fault::new(DENY_STATUS, "takes a status from 400 to 499"))?);
    }
    Ok(found)
}
