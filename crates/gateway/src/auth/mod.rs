//! Who sends a request: a tenant with an API key, a principal with a signed token, or an anonymous address.

mod authenticator;
mod caller;
mod downstream;
mod jwt;

pub use jwt::{JwtKeyFile, JwtVerifier};

pub(crate) use authenticator::{AuthAttempt, AuthError, Authenticator, X_API_KEY};
pub(crate) use caller::Caller;
pub(crate) use downstream::{Downstream, TrustedProxies};
