//! Who sends a request, as far as that is known.

use std::sync::Arc;

use http::Extensions;
use spile_tower::key::{Principal, Tenant};

/// Who sends a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) tenant: Option<Arc<Tenant>>,
    pub(crate) principal: Option<Principal>,
}

impl Caller {
    pub(crate) const fn is_anonymous(&self) -> bool {
        self.tenant.is_none() && self.principal.is_none()
    }

    /// Tells the resolvers of keys and plans.
    pub(crate) fn introduce(&self, extensions: &mut Extensions) {
        if let Some(tenant) = &self.tenant {
            extensions.insert(Tenant::clone(tenant));
        }
        if let Some(principal) = &self.principal {
            extensions.insert(principal.clone());
        }
    }
}
