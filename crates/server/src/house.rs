//! What the dashboard shows of the server: plans, tenants and the buckets of a key.

use std::sync::Arc;

use spile_core::{Charge, Charges, Cost, Plan};
use spile_observe::dashboard::{BucketView, House, Later, NotSeen, PlanView, TenantView};

use crate::decider::Decider;
use crate::identity;

/// The decider, as the dashboard sees it.
pub(crate) struct DeciderHouse(pub(crate) Arc<Decider>);

impl House for DeciderHouse {
    fn plans(&self) -> Vec<PlanView> {
        self.0.policies().plans().into_iter().map(PlanView::from).collect()
    }

    fn tenants(&self) -> Vec<TenantView> {
        let view = |tenant: &crate::tenant::Tenant| TenantView {
            id: tenant.id.to_string(),
            plan: tenant.plan.to_string(),
        };
        self.0.policies().tenants().into_iter().map(view).collect()
    }

    fn look(&self, key: String, plan: Option<String>) -> Later<'_, Result<Vec<BucketView>, NotSeen>> {
        Box::pin(async move {
            let plans = self.asked(plan.as_deref())?;
            let mut buckets = Vec::new();
            for plan in &plans {
                let decision = self.0.look(charges(&key, plan)?).await;
                if decision.degraded() {
                    return Err(NotSeen::Store);
                }
                buckets.extend(BucketView::of(&decision));
            }
            Ok(buckets)
        })
    }
}

impl DeciderHouse {
    /// The plan of that name, or every plan.
    fn asked(&self, name: Option<&str>) -> Result<Vec<Plan>, NotSeen> {
        let policies = self.0.policies();
        match name {
            None => Ok(policies.plans().into_iter().cloned().collect()),
            Some(name) => {
                let plan = policies
                    .plan(name)
                    .ok_or_else(|| wrong("plan", format!("no plan is called {name:?}")))?;
                Ok(vec![plan.clone()])
            }
        }
    }
}

/// Charges that cost nothing: they only look.
fn charges<'k>(key: &'k str, plan: &Plan) -> Result<Charges<'k>, NotSeen> {
    let key = identity::key(key).map_err(|why| wrong("key", why))?;
    let charge = |limit: &spile_core::NamedLimit| Charge::new(key, limit.clone(), Cost::ZERO);
    let charges: Result<Vec<_>, _> = plan.limits().iter().map(charge).collect();
    charges.and_then(Charges::new).map_err(|why| wrong("plan", why.to_string()))
}

fn wrong(field: &'static str, why: String) -> NotSeen {
    NotSeen::Asked { field, why }
}
