//! Who sends a request: a tenant by its API key, a principal by a signed token, or nobody by name.

mod authenticator;
mod caller;
mod downstream;
mod jwt;

pub use jwt::{JwtKeyFile, JwtVerifier};

pub(crate) use authenticator::{Authenticator, Presenter, Unaccepted, X_API_KEY};
pub(crate) use caller::Caller;
pub(crate) use downstream::{Hop, Trust};
