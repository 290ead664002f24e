//! Who sends a request, as far as that is known.

use std::borrow::Cow;
use std::net::IpAddr;
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

    /// In whose name a request waits for its turn: the tenant's, the principal's or the address's.
    pub(crate) fn queues_as(&self, client: IpAddr) -> Cow<'_, str> {
        match (&self.tenant, &self.principal) {
            (Some(tenant), _) => Cow::Borrowed(tenant.id()),
            (None, Some(principal)) => Cow::Borrowed(&principal.0),
            (None, None) => Cow::Owned(client.to_string()),
        }
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
