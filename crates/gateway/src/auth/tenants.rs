//! Which tenant an API key belongs to.

use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::HashMap;
use spile_tower::key::Tenant;

use super::api_key::ApiKeyHash;

/// Knows whose API keys are whose. Asked on every request, so it must answer from memory.
pub trait TenantRegistry: Send + Sync {
    /// The tenant that holds the key of that hash, if one does.
    fn tenant(&self, key: &ApiKeyHash) -> Option<Arc<Tenant>>;

    /// Whether there is any tenant at all. Where there is none, `X-API-Key` and bearer tokens are none of the
    /// gateway's business: they are passed on, and rules may tell callers apart by them.
    fn has_tenants(&self) -> bool {
        true
    }
}

impl<R: TenantRegistry + ?Sized> TenantRegistry for Arc<R> {
    fn tenant(&self, key: &ApiKeyHash) -> Option<Arc<Tenant>> {
        (**self).tenant(key)
    }

    fn has_tenants(&self) -> bool {
        (**self).has_tenants()
    }
}

/// Tenants held in memory, replaceable while requests are being served.
#[derive(Debug, Default)]
pub struct InMemoryTenants(ArcSwap<HashMap<ApiKeyHash, Arc<Tenant>>>);

impl InMemoryTenants {
    /// These tenants, each with its keys.
    pub fn new(tenants: impl IntoIterator<Item = (Tenant, Vec<ApiKeyHash>)>) -> Self {
        Self(ArcSwap::from_pointee(by_key(tenants)))
    }

    /// Puts these tenants in place of all there are, in one step.
    pub fn replace_all(&self, tenants: impl IntoIterator<Item = (Tenant, Vec<ApiKeyHash>)>) {
        self.0.store(Arc::new(by_key(tenants)));
    }
}

impl TenantRegistry for InMemoryTenants {
    fn tenant(&self, key: &ApiKeyHash) -> Option<Arc<Tenant>> {
        self.0.load().get(key).cloned()
    }

    fn has_tenants(&self) -> bool {
        !self.0.load().is_empty()
    }
}

fn by_key(tenants: impl IntoIterator<Item = (Tenant, Vec<ApiKeyHash>)>) -> HashMap<ApiKeyHash, Arc<Tenant>> {
    let pairs = tenants.into_iter().flat_map(|(tenant, keys)| {
        let tenant = Arc::new(tenant);
        keys.into_iter().map(move |key| (key, Arc::clone(&tenant)))
    });
    pairs.collect()
}
