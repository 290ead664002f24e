//! What a request owes once its rules have been read: who pays, how much, and under how many limits.

use std::sync::Arc;

use http::request::Parts;
use spile_core::{Charge, Charges, Cost, Decision, Few, LimitStatus, NamedLimit};
use spile_limiter::LimiterError;

use crate::key::{ResolvedKey, Tenant};

/// Whom one rule charges, and how much.
#[derive(Clone, Debug)]
pub(crate) struct Payer {
    pub(crate) key: ResolvedKey,
    pub(crate) cost: Cost,
    /// Where the rule stands in the layer.
    pub(crate) rule: usize,
}

/// Everybody who pays for a request. It is charged together or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Owed {
    pub(crate) payers: Few<Payer>,
    /// Under how many limits each of them pays, in the order of the decision.
    pub(crate) limits: Few<usize>,
    /// On whose behalf, for observers.
    pub(crate) tenant: Option<Arc<str>>,
}

impl Owed {
    pub(crate) fn new(payers: Few<Payer>, limits: Few<usize>, request: &Parts) -> Self {
        let tenant = request.extensions.get::<Tenant>().map(|tenant| Arc::clone(tenant.shared_id()));
        Self { payers, limits, tenant }
    }

    /// The charges once more, from the limits that they were made with.
    pub(crate) fn charges(&self, limits: &[NamedLimit]) -> Result<Charges<'_>, LimiterError> {
        let mut limits = limits.iter();
        let mut charges = Vec::with_capacity(limits.len());
        for (payer, &count) in self.payers.iter().zip(self.limits.iter()) {
            for limit in limits.by_ref().take(count) {
                charges.push(Charge::new(payer.key.as_key()?, limit.clone(), payer.cost)?);
            }
        }
        Ok(Charges::new(charges)?)
    }

    /// Each payer with the plans that it pays under, as the decision names them.
    pub(crate) fn plans<'a>(
        &'a self,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (&'a Payer, Vec<&'a str>)> {
        let mut limits = decision.limits().iter();
        self.payers.iter().zip(self.limits.iter()).map(move |(payer, &count)| {
            let mut plans: Vec<_> = limits.by_ref().take(count).map(plan_of).collect();
            plans.dedup();
            (payer, plans)
        })
    }
}

/// The plan that a limit belongs to: what stands before the slash in its name.
fn plan_of(limit: &LimitStatus) -> &str {
    let name = limit.name().as_str();
    name.split_once('/').map_or(name, |(plan, _)| plan)
}
