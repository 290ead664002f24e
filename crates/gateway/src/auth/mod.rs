//! Who sends a request: a tenant by its API key, a principal by a signed token, or nobody by name.

mod api_key;
mod authenticator;
mod caller;
mod jwt;
mod tenants;

pub use api_key::{ApiKeyHash, ApiKeyHashError};
pub use jwt::{JwtKeyFile, JwtVerifier};
pub use tenants::{InMemoryTenants, TenantRegistry};

pub(crate) use authenticator::Authenticator;
pub(crate) use caller::Caller;
