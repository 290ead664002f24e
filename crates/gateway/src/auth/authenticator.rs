//! Reads credentials and says whose they are.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use spile_core::Clock;
use spile_listener::Guesses;
use spile_policy::Policy;

use super::caller::Caller;
use super::jwt::JwtVerifier;
use crate::forward::headers::equivalent_names::reads_as;

pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const BEARER: &[u8] = b"bearer";

/// Turns credentials into callers.
#[derive(Clone)]
pub(crate) struct Authenticator {
    pub(crate) policy: Arc<Policy>,
    pub(crate) jwt: Option<Arc<JwtVerifier>>,
}

/// Why a credential is not accepted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Unaccepted {
    Wrong(&'static str),
    /// Its address has presented too many wrong keys: this one was not looked at.
    NotLookedAt,
}

/// Where a credential comes from, and how often a wrong one came from there.
#[derive(Clone, Copy)]
pub(crate) struct Presenter<'g> {
    pub(crate) address: IpAddr,
    pub(crate) guesses: &'g Guesses,
}

impl Authenticator {
    /// Says who sends a request with these headers. A request without any credential has no name; one with a wrong
    /// credential is an error, for its sender claims to have one.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        presenter: Presenter<'_>,
        clock: &dyn Clock,
    ) -> Result<Caller, Unaccepted> {
        let (has_tenants, jwt) = (self.policy.has_tenants(), self.jwt.as_deref());
        if !has_tenants && jwt.is_none() {
            return Ok(Caller::default());
        }
        let key = headers.get(&X_API_KEY).filter(|_| has_tenants);
        let by_key = key.map(|key| self.by_key(key.as_bytes(), presenter)).transpose()?;
        let Some(token) = bearer(headers)? else { return Ok(by_key.unwrap_or_default()) };
        // Upstreams take it that what passes for a token here was checked, whatever else came with it.
        if let Some(jwt) = jwt.filter(|_| !has_tenants || by_key.is_some() || is_jwt(token)) {
            let by_token = jwt.verify(token, clock.wall(), &self.policy)?;
            let tenant = by_key.and_then(|caller| caller.tenant).or(by_token.tenant);
            return Ok(Caller { tenant, ..by_token });
        }
        if let Some(caller) = by_key {
            return Ok(caller);
        }
        Ok(Caller { by_bearer: true, ..self.by_key(token.as_bytes(), presenter)? })
    }

    /// Whether the field holds the caller's API key, in whatever spelling: that is meant for the gateway alone.
    pub(crate) fn holds_key(&self, caller: &Caller, name: &HeaderName) -> bool {
        (reads_as(name.as_str(), X_API_KEY.as_str()) && self.policy.has_tenants())
            || (caller.by_bearer && *name == AUTHORIZATION)
    }

    fn by_key(&self, key: &[u8], presenter: Presenter<'_>) -> Result<Caller, Unaccepted> {
        let mut tenant = None;
        let look_up = || {
            tenant = self.policy.tenant_of_key(key);
            tenant.is_some()
        };
        match presenter.guesses.judge(presenter.address, key, look_up) {
            Ok(true) => Ok(Caller { tenant, ..Caller::default() }),
            Ok(false) => Err(Unaccepted::Wrong("the API key is not known")),
            Err(_) => Err(Unaccepted::NotLookedAt),
        }
    }
}

/// The token of `Authorization: Bearer …`, if that is what the header holds. Of two credentials an upstream may believe
/// the other one, and what cannot be read here may be read there.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Unaccepted> {
    let values = headers.get_all(AUTHORIZATION);
    let Some(token) = values.iter().find_map(bearer_token) else { return Ok(None) };
    if values.iter().nth(1).is_some() {
        return Err(Unaccepted::Wrong("the request carries two credentials"));
    }
    std::str::from_utf8(token).map(Some).map_err(|_| Unaccepted::Wrong("the token cannot be read"))
}

fn bearer_token(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().trim_ascii().split_at_checked(BEARER.len())?;
    let ends = token.first().is_none_or(u8::is_ascii_whitespace);
    (ends && scheme.eq_ignore_ascii_case(BEARER)).then(|| token.trim_ascii())
}

/// Whether the token has the three parts of a signed one.
fn is_jwt(token: &str) -> bool {
    token.bytes().filter(|&byte| byte == b'.').count() == 2
}
