//! The data of the dashboard that comes from the server: plans, rules, tenants and the buckets of a key.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use spile_observe::dashboard::{BucketView, DashboardSource, PeekError, PlanView, RuleView, TenantView};
use spile_policy::{Rule, RulePlans, Tenant};

use crate::control::Control;
use crate::decide::Decider;
use crate::decide::buckets::{self, BucketsError, field_of};

/// Provides the plans, rules, tenants and buckets of the decider to the dashboard.
pub(crate) struct DeciderDashboard(pub(crate) Arc<Decider>, pub(crate) Arc<Control>);

impl DashboardSource for DeciderDashboard {
    fn plans(&self) -> Vec<PlanView> {
        self.0.policy().plans().into_iter().map(PlanView::from).collect()
    }

    fn rules(&self) -> Vec<RuleView> {
        let otherwise = self.0.policy().on_failure();
        let view = |rule: &Rule| RuleView {
            id: rule.id.to_string(),
            plans: plans_of(rule),
            shadow: rule.shadow,
            on_failure: rule.on_failure.unwrap_or(otherwise).to_string(),
        };
        self.1.config().rules.iter().map(view).collect()
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

    fn peek(&self, key: String, plan: Option<String>) -> BoxFuture<'_, Result<Vec<BucketView>, PeekError>> {
        Box::pin(async move {
            let peeked = buckets::peek(&self.0, &key, plan.as_deref()).await.map_err(|why| match why {
                BucketsError::Invalid(why) => {
                    PeekError::Invalid { field: field_of(&why), why: why.to_string() }
                }
                BucketsError::Store => PeekError::Store,
            })?;
            Ok(peeked.iter().flat_map(|(_, decision)| BucketView::of(decision)).collect())
        })
    }
}

fn plans_of(rule: &Rule) -> Vec<String> {
    match &rule.plans {
        RulePlans::Listed(plans) => plans.iter().map(ToString::to_string).collect(),
        RulePlans::Tenant { .. } => vec!["tenant".to_owned()],
        RulePlans::Unlimited => vec!["unlimited".to_owned()],
        RulePlans::Banned => vec!["banned".to_owned()],
    }
}
