//! Builds a policy.

use std::cmp::Reverse;

use smol_str::SmolStr;
use spile_core::{FailurePolicy, LimitName, Plan, PlanName};

use super::{Map, Policy, RuleIndex};
use crate::descriptor::DescriptorMatch;
use crate::rule::{HostPattern, Rule, RulePlans};
use crate::tenant::Tenant;

/// Builds a [`Policy`]. Without rules nothing is limited.
#[derive(Clone, Debug)]
#[must_use = "call build()"]
pub struct PolicyBuilder {
    /// Without what [`build`](Self::build) derives from rules and tenants.
    policy: Policy,
    route_limits: Vec<(String, Vec<Rule>)>,
    tenants: Vec<Tenant>,
}

impl PolicyBuilder {
    pub(crate) fn new() -> Self {
        let policy = Policy { ipv6_prefix: 64, ..Policy::default() };
        Self { policy, route_limits: Vec::new(), tenants: Vec::new() }
    }

    /// Adds plans.
    pub fn plans(mut self, plans: impl IntoIterator<Item = Plan>) -> Self {
        self.policy.plans.extend(plans.into_iter().map(|plan| (plan.name().clone(), plan)));
        self
    }

    /// Adds rules. Of those that match a request, the most specific enforced one applies, and beside it the most specific
    /// one in shadow mode; of two that are equally specific, the one that was added first.
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.policy.rules.extend(rules);
        self
    }

    /// Adds limits to the route of that name. Each client has separate buckets for the route.
    pub fn route_limits(mut self, route: &str, limits: impl IntoIterator<Item = Rule>) -> Self {
        self.route_limits.push((route.to_owned(), limits.into_iter().collect()));
        self
    }

    /// Adds tenants.
    pub fn tenants(mut self, tenants: impl IntoIterator<Item = Tenant>) -> Self {
        self.tenants.extend(tenants);
        self
    }

    /// Reads API keys even if there is no tenant yet, because tenants exist but are not loaded at the moment.
    pub const fn expects_tenants(mut self, expects: bool) -> Self {
        self.policy.expects_tenants = expects;
        self
    }

    /// Uses this policy if the store fails, unless a rule has its own.
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.policy.on_failure = policy;
        self
    }

    /// Groups IPv6 addresses by networks with this prefix length. 64 by default.
    pub const fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.policy.ipv6_prefix = bits;
        self
    }

    /// Builds the policy. Fails if a rule or a tenant names a plan or a rule that does not exist.
    pub fn build(self) -> Result<Policy, PolicyError> {
        let Self { mut policy, route_limits, tenants } = self;
        let (plans, rules) = (&policy.plans, &policy.rules);
        let mut by_id: Map<SmolStr, usize> = Map::default();
        for (at, rule) in rules.iter().enumerate() {
            // A rule in shadow mode does not replace an enforced one of the same id.
            if !rule.shadow || by_id.get(&rule.id).is_none_or(|&other| rules[other].shadow) {
                by_id.insert(rule.id.clone(), at);
            }
        }
        for rule in rules.iter().chain(route_limits.iter().flat_map(|(_, limits)| limits)) {
            if let Some(plan) = rule.plans.known().iter().find(|name| !plans.contains_key(*name)) {
                return Err(PolicyError::Plan { of: rule.id.clone(), plan: plan.clone() });
            }
            if let Some(other) = rule.also.iter().find(|id| !by_id.contains_key(*id)) {
                return Err(PolicyError::Also { rule: rule.id.clone(), other: other.clone() });
            }
            if let Some(other) = rule.descriptors.replaces.iter().find(|id| !by_id.contains_key(*id)) {
                return Err(PolicyError::Replaces { rule: rule.id.clone(), other: other.clone() });
            }
        }
        if let Some(tenant) = tenants.iter().find(|tenant| !plans.contains_key(&tenant.plan)) {
            return Err(PolicyError::Plan { of: tenant.id.clone(), plan: tenant.plan.clone() });
        }
        policy.enforced = RuleIndex::new(rules, |rule| !rule.shadow);
        policy.shadow = RuleIndex::new(rules, |rule| rule.shadow);
        policy.has_replacing = rules.iter().any(|rule| !rule.descriptors.replaces.is_empty());
        policy.by_id = by_id;
        policy.route_limits.extend(route_limits);
        for tenant in tenants {
            policy.tenant_by_key.extend(tenant.api_keys.iter().map(|key| (*key, tenant.id.clone())));
            policy.tenants.insert(tenant.id.clone(), tenant);
        }
        match policy.permit_of_descriptors() {
            Some((rule, limit)) => Err(PolicyError::DescriptorPermit { rule, limit }),
            None => Ok(policy),
        }
    }
}

impl RuleIndex {
    /// The index of the rules that `included` selects.
    fn new(rules: &[Rule], included: fn(&Rule) -> bool) -> Self {
        let Self { mut by_specificity, mut by_domain } = Self::default();
        for (at, Rule { matcher, .. }) in rules.iter().enumerate().filter(|(_, rule)| included(rule)) {
            match &matcher.descriptor {
                Some(descriptor) => by_domain.entry(descriptor.domain.clone()).or_default().push(at),
                None if matcher.hosts.is_empty() => by_specificity.push((None, at)),
                None => by_specificity.extend(matcher.hosts.iter().map(|host| (Some(host.clone()), at))),
            }
        }
        // The specificity is that of the matching host, and not that of another host of the same rule. The sorts are stable: of two
        // equally specific rules, the one that was added first wins.
        by_specificity.sort_by_key(|(host, at)| {
            Reverse((host.as_ref().map(HostPattern::specificity), rules[*at].matcher.specificity()))
        });
        for ordered in by_domain.values_mut() {
            ordered.sort_by_key(|at| {
                Reverse(rules[*at].matcher.descriptor.as_ref().map(DescriptorMatch::specificity))
            });
        }
        Self { by_specificity, by_domain }
    }
}

impl Policy {
    /// The first rule for descriptors that may charge a concurrency, and that limit. Envoy asks and never says when the request
    /// has ended, so that no permit could be released.
    fn permit_of_descriptors(&self) -> Option<(SmolStr, LimitName)> {
        self.rules.iter().filter(|rule| rule.matcher.descriptor.is_some()).find_map(|rule| {
            let limit = self.with_also(rule).into_iter().find_map(|rule| self.permit_of(rule))?;
            Some((rule.id.clone(), limit))
        })
    }

    /// A concurrency that a rule may charge, for any tenant.
    fn permit_of(&self, rule: &Rule) -> Option<LimitName> {
        let by_tenant = matches!(rule.plans, RulePlans::Tenant { .. });
        let tenants = self.tenants.values().filter(|_| by_tenant);
        let of_tenants = tenants.filter_map(|tenant| tenant.own().or_else(|| self.plans.get(&tenant.plan)));
        let limits = self.plans_of(rule, None).chain(of_tenants).flat_map(Plan::limits);
        limits.filter(|limit| limit.limit().is_concurrency()).map(|limit| limit.name().clone()).min()
    }
}

/// Why a policy cannot be built.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A rule or a tenant names a plan that does not exist.
    #[error("`{of}` names the plan `{plan}`, and there is no such plan")]
    Plan {
        /// The rule or tenant.
        of: SmolStr,
        /// The plan.
        plan: PlanName,
    },
    /// The `also` list of a rule names a rule that does not exist.
    #[error("rule `{rule}` is charged with `{other}`, and there is no such rule")]
    Also {
        /// The rule.
        rule: SmolStr,
        /// The other.
        other: SmolStr,
    },
    /// A rule for descriptors charges a concurrency.
    #[error(
        "rule `{rule}` is for descriptors and charges `{limit}`, which is a concurrency: Envoy does not tell when a request has \
         ended, so that no permit could be released"
    )]
    DescriptorPermit {
        /// The rule.
        rule: SmolStr,
        /// The limit.
        limit: LimitName,
    },
    /// The `replaces` list of a rule names a rule that does not exist.
    #[error("rule `{rule}` replaces `{other}`, and there is no such rule")]
    Replaces {
        /// The rule.
        rule: SmolStr,
        /// The other.
        other: SmolStr,
    },
}
