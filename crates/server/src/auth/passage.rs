//! Collects the facts of a whole request, and decides whether it may pass.

use std::net::SocketAddr;

use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderName, StatusCode};
use spile_limiter::Ruling;
use spile_policy::{Credential, Facts, Owed, PolicyRefusal, single_value};
use spile_tower::client::{ClientAddress, Forwarding};

use super::original::Original;
use crate::decide::{ActivePolicy, Decider};
use crate::http::Problem;

pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The facts of a request that comes from this peer.
pub(crate) fn facts<'a>(
    request: &'a Parts,
    original: &'a Original,
    peer: SocketAddr,
    in_force: &ActivePolicy,
) -> Facts<'a> {
    let (clients, policy, headers) = (&in_force.clients, &in_force.policy, &request.headers);
    let trusted = clients.trusted_proxies.contain(peer.ip());
    let address = ClientAddress::reported_in(Forwarding::XForwardedFor, clients.trusted_proxies.clone());
    let principal = if trusted { single_value(headers, &clients.principal_header) } else { None };
    let api_key = headers.get(X_API_KEY);
    let tenant = api_key.and_then(|key| policy.tenant_of_key(key.as_bytes()));
    // An unknown key may be meant for the service behind the proxy.
    let is_unknown = api_key.is_some() && tenant.is_none() && policy.has_tenants();
    Facts {
        host: &original.host,
        address: Some(address.seen_by(peer.ip(), headers)),
        principal,
        credential: if is_unknown { Credential::Unknown } else { Credential::Accepted },
        tenant,
        ..Facts::new(&original.method, original.path.matched(), headers)
    }
}

/// Decides what a request owes.
pub(crate) async fn allow(decider: &Decider, owed: &Owed) -> Result<Ruling, Problem> {
    let ruling = decider.allow(owed).await;
    match &owed.refusal {
        Some(refusal) if ruling.allowed() => Err(refused(refusal)),
        _ => Ok(ruling),
    }
}

fn refused(refusal: &PolicyRefusal) -> Problem {
    let problem = |status| Problem::new(status, refusal.to_string());
    match refusal {
        PolicyRefusal::NoKey { .. } | PolicyRefusal::NoTenant { .. } => problem(StatusCode::UNAUTHORIZED)
            .with("field", "key")
            .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("ApiKey")),
        PolicyRefusal::NoIdentity { .. } => problem(StatusCode::BAD_REQUEST).with("field", "key"),
        PolicyRefusal::NeverPasses(_) | PolicyRefusal::Banned { .. } => problem(StatusCode::FORBIDDEN),
        _ => problem(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
