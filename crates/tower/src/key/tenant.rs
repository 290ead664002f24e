//! The key is the customer.

use std::sync::Arc;

use http::request::Parts;

use super::{KeyResolver, ResolvedKey};

/// The customer whose request this is. Authentication puts it into the request's extensions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tenant {
    /// Shared, because every request of the tenant carries it, and every decision names it to observers.
    id: Arc<str>,
    plan: Option<Arc<str>>,
}

impl Tenant {
    /// A tenant with this id, and without a plan.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), plan: None }
    }

    /// The plan that the tenant pays for, which [`TenantPlan`](crate::TenantPlan) applies.
    #[must_use]
    pub fn on_plan(mut self, plan: impl Into<Arc<str>>) -> Self {
        self.plan = Some(plan.into());
        self
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The plan that the tenant pays for. `None` if it is not known.
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }
}

/// Reads the key from the [`Tenant`] in the request's extensions: `tenant:acme`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TenantKey;

impl KeyResolver for TenantKey {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        let tenant = request.extensions.get::<Tenant>().filter(|tenant| !tenant.id.is_empty())?;
        Some(ResolvedKey::tenant(&tenant.id))
    }
}
