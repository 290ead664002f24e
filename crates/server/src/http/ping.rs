//! The sample endpoint: what any limited service looks like from outside.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};
use spile_core::{Cost, Decision, Micros, Reason};

use super::fields;
use super::problem::{BACKEND_ERROR, Problem};
use super::reply::{Reply, reply};
use crate::decider::Decider;
use crate::fault::Fault;
use crate::identity;
use crate::question::{self, Question};

const API_KEY: &str = "x-api-key";
const PLAN: &str = "free";
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Answers `pong` to whoever has a token left: per `X-API-Key`, else per address.
pub(crate) async fn ping(decider: &Decider, peer: SocketAddr, headers: &HeaderMap) -> Result<Reply, Problem> {
    let caller = caller(peer, headers)?;
    let key = identity::key(&caller).map_err(|why| Fault::new("X-API-Key", why))?;
    let charges = question::charges(key, [PLAN], Cost::ONE, &decider.policies())?;
    let decision = decider.check(Question::from(charges)).await;
    let wall = decider.wall_now();
    if decision.allowed() {
        Ok(reply(StatusCode::OK, fields::of(&decision, wall), "application/json", "{\"message\":\"pong\"}"))
    } else {
        Err(refusal(&decision, wall))
    }
}

/// Keys and addresses are told apart, or a key that reads like an address would spend that address's tokens.
fn caller(peer: SocketAddr, headers: &HeaderMap) -> Result<String, Fault> {
    match headers.get(API_KEY).filter(|value| !value.is_empty()) {
        Some(value) => match value.to_str() {
            Ok(key) => Ok(format!("key:{key}")),
            Err(_) => Err(Fault::new("X-API-Key", "holds bytes outside visible ASCII")),
        },
        None => Ok(format!("ip:{}", address(peer.ip()))),
    }
}

/// IPv6 counts by its /64, which is what one subscriber holds; a mapped IPv4 address counts as IPv4.
fn address(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn refusal(decision: &Decision, wall: Micros) -> Problem {
    if decision.reason() == Reason::FailClosed {
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, BACKEND_ERROR)
            .with_headers(fields::of(decision, wall));
    }
    let seconds = fields::retry_after_secs(decision);
    let unit = if seconds == 1 { "second" } else { "seconds" };
    let message = format!("Too many requests. Please retry after {seconds} {unit}.");
    let title = "Rate limit exceeded";
    let violated: Vec<&str> = decision
        .limits()
        .iter()
        .filter(|status| status.retry_after() > Duration::ZERO)
        .map(|status| status.name().as_str())
        .collect();
    let reset_at = UNIX_EPOCH + Duration::from_micros(wall.get()) + decision.reset_after();
    Problem::new(StatusCode::TOO_MANY_REQUESTS, message.clone())
        .with_headers(fields::of(decision, wall))
        .with("type", QUOTA_EXCEEDED)
        .with("title", title)
        .with("violated-policies", violated)
        .with("error", title)
        .with("message", message)
        .with("limit", decision.binding().limit().capacity())
        .with("remaining", decision.remaining())
        .with("resetAt", humantime::format_rfc3339_millis(reset_at).to_string())
}
