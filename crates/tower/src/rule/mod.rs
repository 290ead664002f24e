//! A rule of the layer: who pays, under which plans, how much.

mod plans;

use std::fmt;

use http::request::Parts;
use spile_core::Amount;

pub use self::plans::{PlanNames, PlanResolver, PlansBy, TenantPlan};
use crate::key::{ClientIp, KeyResolver, ResolvedKey, TenantKey};

/// Who pays for a request, under which plans, and how much.
///
/// ```
/// # use spile_tower as spile;
/// use spile::Rule;
/// use spile::key::{ClientIp, TenantKey};
///
/// let usual = Rule::tenant_or_address("free");
/// let by_address = Rule::new(ClientIp::direct(), "free");
/// let by_tenant = Rule::new(TenantKey, ["gold", "daily"]).cost_by(|request| {
///     if request.method == http::Method::POST { 5 } else { 1 }
/// });
/// ```
pub struct Rule {
    key: Box<dyn KeyResolver>,
    plans: Box<dyn PlanResolver>,
    cost: RuleCost,
}

enum RuleCost {
    Fixed(Amount),
    By(Box<dyn Fn(&Parts) -> Amount + Send + Sync>),
}

impl Rule {
    /// Charges the key that `key` finds one token under every limit of `plans`, which is a name, several, or a resolver.
    pub fn new(key: impl KeyResolver + 'static, plans: impl PlanResolver + 'static) -> Self {
        Self { key: Box::new(key), plans: Box::new(plans), cost: RuleCost::Fixed(Amount::TOKEN) }
    }

    /// Charges the tenant under its own plan, or else the client's address under `plan`. A caller cannot choose either, and so
    /// cannot get a new bucket.
    pub fn tenant_or_address(plan: impl Into<String>) -> Self {
        Self::new(TenantKey.or(ClientIp::direct()), TenantPlan::or(plan))
    }

    /// Charges this many tokens.
    #[must_use]
    pub fn cost(mut self, tokens: impl Into<Amount>) -> Self {
        self.cost = RuleCost::Fixed(tokens.into());
        self
    }

    /// Charges as many tokens as `price` returns.
    #[must_use]
    pub fn cost_by<C: Into<Amount>>(mut self, price: impl Fn(&Parts) -> C + Send + Sync + 'static) -> Self {
        self.cost = RuleCost::By(Box::new(move |request| price(request).into()));
        self
    }

    /// The plans that do not depend on the request.
    pub(crate) fn fixed_plans(&self) -> PlanNames<'_> {
        self.plans.fixed_plans()
    }

    /// True if its key may be the address of the connection's peer.
    pub(crate) fn needs_peer(&self) -> bool {
        self.key.needs_peer()
    }

    pub(crate) fn key_of(&self, request: &Parts) -> Option<ResolvedKey> {
        self.key.resolve(request)
    }

    pub(crate) fn plans_of<'r>(&'r self, request: &'r Parts) -> PlanNames<'r> {
        self.plans.plans(request)
    }

    pub(crate) fn cost_of(&self, request: &Parts) -> Amount {
        match &self.cost {
            RuleCost::Fixed(tokens) => *tokens,
            RuleCost::By(price) => price(request),
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rule")
    }
}
