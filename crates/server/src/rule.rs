//! A rule: which requests it matches, who pays, under which plans, how much, and what happens when the store fails.

use smol_str::SmolStr;
use spile_core::{Cost, FailurePolicy, PlanName};

use crate::key_list::KeyList;
use crate::matcher::Matcher;

/// A rule. Callers ask it by its id; proxies also by the requests it matches.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) id: SmolStr,
    pub(crate) matcher: Matcher,
    pub(crate) key: KeyList,
    pub(crate) plans: RulePlans,
    pub(crate) cost: Cost,
    /// Overrides the store's policy.
    pub(crate) on_failure: Option<FailurePolicy>,
    /// Decides and counts, but never blocks.
    pub(crate) shadow: bool,
    /// Rules that are charged with this one: all of them, or none.
    pub(crate) also: Vec<SmolStr>,
}

/// Under which plans a rule charges.
#[derive(Clone, Debug)]
pub(crate) enum RulePlans {
    /// These, whoever asks.
    Listed(Vec<PlanName>),
    /// The plan of the tenant that asks; for whoever is none, the anonymous one.
    Tenant {
        /// Nothing where the rule is for tenants alone.
        anonymous: Option<PlanName>,
    },
}

impl RulePlans {
    /// The plans that are known before anybody asks.
    pub(crate) fn known(&self) -> &[PlanName] {
        match self {
            Self::Listed(plans) => plans,
            Self::Tenant { anonymous } => anonymous.as_slice(),
        }
    }
}
