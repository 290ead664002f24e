//! Who sends a request: a tenant by its API key, a principal by a signed token, or nobody by name.

mod api_key;
mod authenticator;
mod caller;
mod tenants;

pub use api_key::ApiKeyHash;
pub use tenants::{InMemoryTenants, TenantRegistry};

pub(crate) use authenticator::Authenticator;
pub(crate) use caller::Caller;
