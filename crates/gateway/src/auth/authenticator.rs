//! Reads credentials and says whose they are.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use spile_core::Micros;

use super::api_key::ApiKeyHash;
use super::caller::Caller;
use super::jwt::JwtVerifier;
use super::tenants::TenantRegistry;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Turns credentials into callers.
pub(crate) struct Authenticator {
    pub(crate) tenants: Box<dyn TenantRegistry>,
}

/// Why a credential is not accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unaccepted(pub(crate) &'static str);

impl Authenticator {
    /// Says who sends a request with these headers, and takes API keys out: they are meant for the gateway alone. A
    /// request without any credential is nobody's; one with a wrong credential is an error, for its sender believes
    /// to be somebody.
    pub(crate) fn identify(
        &self,
        headers: &mut HeaderMap,
        jwt: Option<&JwtVerifier>,
        now: Micros,
    ) -> Result<Caller, Unaccepted> {
        let has_tenants = self.tenants.has_tenants();
        if has_tenants && let Some(key) = headers.remove(&X_API_KEY) {
            return self.by_key(key.as_bytes());
        }
        let Some(token) = bearer(headers) else { return Ok(Caller::default()) };
        if let Some(jwt) = jwt.filter(|_| is_jwt(token)) {
            return jwt.verify(token, now);
        }
        if !has_tenants {
            return Ok(Caller::default());
        }
        let caller = self.by_key(token.as_bytes())?;
        headers.remove(AUTHORIZATION);
        Ok(caller)
    }

    fn by_key(&self, key: &[u8]) -> Result<Caller, Unaccepted> {
        let tenant = self.tenants.tenant(&ApiKeyHash::of(key));
        let tenant = tenant.ok_or(Unaccepted("the API key is not known"))?;
        Ok(Caller { tenant: Some(tenant), principal: None })
    }
}

/// The token of `Authorization: Bearer …`, if that is what the header holds.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION).map(HeaderValue::to_str)?.ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether the token has the three parts of a signed one.
fn is_jwt(token: &str) -> bool {
    token.bytes().filter(|&byte| byte == b'.').count() == 2
}
