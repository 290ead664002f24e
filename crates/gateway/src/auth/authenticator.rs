//! Determines the caller that a credential belongs to.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use spile_core::Clock;
use spile_listener::GuessLimiter;
use spile_policy::Policy;

use super::caller::Caller;
use super::jwt::JwtVerifier;
use crate::forward::headers::equivalent_names::is_equivalent;

pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const BEARER: &[u8] = b"bearer";

/// Turns credentials into callers: API keys by the policy, signed tokens by the verifier.
#[derive(Clone)]
pub(crate) struct Authenticator {
    pub(crate) policy: Arc<Policy>,
    pub(crate) jwt: Option<Arc<JwtVerifier>>,
}

/// Why a credential is not accepted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum AuthError {
    Invalid(&'static str),
    /// The address has sent too many wrong credentials, and this one is not known to be right.
    TooManyGuesses,
}

/// Where a credential comes from, and the count of wrong ones from each address.
#[derive(Clone, Copy)]
pub(crate) struct AuthAttempt<'g> {
    pub(crate) address: IpAddr,
    pub(crate) guesses: &'g GuessLimiter,
}

impl Authenticator {
    /// The caller that sends a request with these headers. A request without a credential is anonymous. A wrong
    /// credential is an error, not an anonymous request.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        attempt: AuthAttempt<'_>,
        clock: &dyn Clock,
    ) -> Result<Caller, AuthError> {
        let (has_tenants, jwt) = (self.policy.has_tenants(), self.jwt.as_deref());
        if !has_tenants && jwt.is_none() {
            return Ok(Caller::default());
        }
        let key = headers.get(&X_API_KEY).filter(|_| has_tenants);
        let by_key = key.map(|key| self.by_key(key.as_bytes(), attempt)).transpose()?;
        let Some(token) = bearer(headers)? else { return Ok(by_key.unwrap_or_default()) };
        // Upstreams rely on the gateway to check every token, even if an API key came with it.
        if let Some(jwt) = jwt.filter(|_| !has_tenants || by_key.is_some() || is_jwt(token)) {
            let by_token = jwt.verify(token, attempt, clock.wall(), &self.policy)?;
            let tenant = by_key.and_then(|caller| caller.tenant).or(by_token.tenant);
            return Ok(Caller { tenant, ..by_token });
        }
        if let Some(caller) = by_key {
            return Ok(caller);
        }
        Ok(Caller { key_in_bearer: true, ..self.by_key(token.as_bytes(), attempt)? })
    }

    /// Whether the field holds the caller's API key, which upstreams must not get, in any equivalent spelling.
    pub(crate) fn holds_key(&self, caller: &Caller, name: &HeaderName) -> bool {
        (is_equivalent(name.as_str(), X_API_KEY.as_str()) && self.policy.has_tenants())
            || (caller.key_in_bearer && *name == AUTHORIZATION)
    }

    fn by_key(&self, key: &[u8], attempt: AuthAttempt<'_>) -> Result<Caller, AuthError> {
        let mut tenant = None;
        let look_up = || {
            tenant = self.policy.tenant_of_key(key);
            tenant.is_some()
        };
        match attempt.guesses.check_key(attempt.address, key, look_up) {
            Ok(true) => Ok(Caller { tenant, ..Caller::default() }),
            Ok(false) => Err(AuthError::Invalid("the API key is not known")),
            Err(_) => Err(AuthError::TooManyGuesses),
        }
    }
}

/// The token of `Authorization: Bearer …`. `None` if the header is absent or of another scheme. Two `Authorization` headers are refused:
/// the upstream might use the one that was not checked here. So is a token that is not UTF-8.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, AuthError> {
    let values = headers.get_all(AUTHORIZATION);
    let Some(token) = values.iter().find_map(bearer_token) else { return Ok(None) };
    if values.iter().nth(1).is_some() {
        return Err(AuthError::Invalid("the request carries two credentials"));
    }
    std::str::from_utf8(token).map(Some).map_err(|_| AuthError::Invalid("the token cannot be read"))
}

fn bearer_token(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().trim_ascii().split_at_checked(BEARER.len())?;
    let ends = token.first().is_none_or(u8::is_ascii_whitespace);
    (ends && scheme.eq_ignore_ascii_case(BEARER)).then(|| token.trim_ascii())
}

/// Whether the token has the three parts of a JWT.
fn is_jwt(token: &str) -> bool {
    token.bytes().filter(|&byte| byte == b'.').count() == 2
}
