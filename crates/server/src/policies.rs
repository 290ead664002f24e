//! Everything that may change while the server runs: one value that is replaced whole, so that no request sees
//! half of a change.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smol_str::SmolStr;
use spile_core::{LimitName, Plan, PlanName};

use crate::config::Config;
use crate::rule::Rule;

/// Plans and rules, by name.
#[derive(Debug)]
pub(crate) struct Policies {
    plans: HashMap<PlanName, Plan, RandomState>,
    rules: HashMap<SmolStr, Rule, RandomState>,
}

impl Policies {
    pub(crate) fn plan(&self, name: &str) -> Option<&Plan> {
        self.plans.get(name)
    }

    pub(crate) fn rule(&self, id: &str) -> Option<&Rule> {
        self.rules.get(id)
    }

    /// Each rule with each limit that it may charge, for metrics to be ready before the first decision.
    pub(crate) fn rule_limits(&self) -> impl Iterator<Item = (&str, &LimitName)> {
        self.rules.values().flat_map(|rule| {
            let plans = rule.plans.iter().filter_map(|name| self.plans.get(name));
            plans.flat_map(Plan::limits).map(|limit| (rule.id.as_str(), limit.name()))
        })
    }
}

impl From<&Config> for Policies {
    fn from(config: &Config) -> Self {
        Self {
            plans: config.plans.iter().map(|plan| (plan.name().clone(), plan.clone())).collect(),
            rules: config.rules.iter().map(|rule| (rule.id.clone(), rule.clone())).collect(),
        }
    }
}
