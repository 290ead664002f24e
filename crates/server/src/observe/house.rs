//! What the dashboard shows of the server: plans, tenants and the buckets of a key.

use std::sync::Arc;

use spile_observe::dashboard::{BucketView, House, Later, NotSeen, PlanView, TenantView};
use spile_policy::Tenant;

use crate::control::Control;
use crate::decide::Decider;
use crate::decide::buckets::field_of;

/// The decider, as the dashboard sees it, and what is in force.
pub(crate) struct DeciderHouse(pub(crate) Arc<Decider>, pub(crate) Arc<Control>);

impl House for DeciderHouse {
    fn plans(&self) -> Vec<PlanView> {
        self.0.policy().plans().into_iter().map(PlanView::from).collect()
    }

    fn tenants(&self) -> Vec<TenantView> {
        let view = |tenant: &Tenant| TenantView { id: tenant.id.to_string(), plan: tenant.plan.to_string() };
        self.0.policy().tenants().into_iter().map(view).collect()
    }

    fn warning(&self) -> Option<String> {
        self.1.config().quarantine().counted()
    }

    fn mask(&self, key: &str) -> String {
        self.0.mask(key)
    }

    fn look(&self, key: String, plan: Option<String>) -> Later<'_, Result<Vec<BucketView>, NotSeen>> {
        Box::pin(async move {
            let mut buckets = Vec::new();
            let chains = self.0.policy().buckets_of(&key, plan.as_deref());
            let wrong = |wrong| NotSeen::Asked { field: field_of(&wrong), why: wrong.to_string() };
            for chain in chains.map_err(wrong)? {
                let decision = self.0.peek(Some(&chain)).await;
                if decision.degraded() {
                    return Err(NotSeen::Store);
                }
                buckets.extend(BucketView::of(&decision));
            }
            Ok(buckets)
        })
    }
}
