//! Everything that may change while the server runs: one value that is replaced whole, so that no request sees
//! half of a change.

use std::cmp::Reverse;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use http::Method;
use http::request::Parts;
use smol_str::SmolStr;
use spile_core::{FailurePolicy, LimitName, Plan, PlanName};
use spile_tower::client::Networks;

use crate::config::Config;
use crate::descriptor::DescriptorMatch;
use crate::rule::Rule;
use crate::secret::Secret;
use crate::tenant::{ApiKeyHash, Tenant};

const API_KEY: &str = "x-api-key";

/// Plans, rules and tenants, by whatever they are asked for.
#[derive(Debug)]
pub(crate) struct Policies {
    plans: HashMap<PlanName, Plan, RandomState>,
    rules: HashMap<SmolStr, Rule, RandomState>,
    /// The ids of all rules, the most specific first.
    by_specificity: Vec<SmolStr>,
    /// The ids of the rules for descriptors of each domain, the most specific first.
    by_domain: HashMap<String, Vec<SmolStr>, RandomState>,
    /// The limits that routes have of their own, by the name of the route.
    route_limits: HashMap<String, Vec<Rule>, RandomState>,
    tenants: HashMap<SmolStr, Tenant, RandomState>,
    tenant_by_key: HashMap<ApiKeyHash, SmolStr, RandomState>,
    /// What clients of the Redis protocol have to know, where they have to know anything.
    pub(crate) resp_password: Option<Secret>,
    pub(crate) on_failure: FailurePolicy,
    pub(crate) trusted_proxies: Networks,
    pub(crate) ipv6_prefix: u8,
}

impl Policies {
    pub(crate) fn plan(&self, name: &str) -> Option<&Plan> {
        self.plans.get(name)
    }

    /// The limits that routes have of their own.
    pub(crate) fn route_limits(&self) -> impl Iterator<Item = (&str, &[Rule])> {
        self.route_limits.iter().map(|(route, limits)| (route.as_str(), limits.as_slice()))
    }

    /// Every plan, by name.
    pub(crate) fn plans(&self) -> Vec<&Plan> {
        let mut plans: Vec<_> = self.plans.values().collect();
        plans.sort_by_key(|plan| plan.name());
        plans
    }

    /// Every tenant, by id.
    pub(crate) fn tenants(&self) -> Vec<&Tenant> {
        let mut tenants: Vec<_> = self.tenants.values().collect();
        tenants.sort_by_key(|tenant| &tenant.id);
        tenants
    }

    pub(crate) fn rule(&self, id: &str) -> Option<&Rule> {
        self.rules.get(id)
    }

    /// The most specific rule for such a request.
    pub(crate) fn rule_for(&self, method: &Method, path: &str) -> Option<&Rule> {
        let rules = self.by_specificity.iter().filter_map(|id| self.rules.get(id));
        rules.into_iter().find(|rule| rule.matcher.matches(method, path))
    }

    /// The most specific rule for a descriptor of these entries.
    pub(crate) fn rule_for_descriptor<'e>(
        &self,
        domain: &str,
        entries: &(impl ExactSizeIterator<Item = (&'e str, &'e str)> + Clone),
    ) -> Option<&Rule> {
        let rules = self.by_domain.get(domain)?.iter().filter_map(|id| self.rules.get(id));
        let fits = |rule: &&Rule| {
            rule.matcher.descriptor.as_ref().is_some_and(|descriptor| descriptor.matches(entries.clone()))
        };
        rules.into_iter().find(fits)
    }

    pub(crate) fn tenant(&self, id: &str) -> Option<&Tenant> {
        self.tenants.get(id)
    }

    /// The tenant whose API key the request carries.
    pub(crate) fn tenant_of(&self, request: &Parts) -> Option<&Tenant> {
        let api_key = request.headers.get(API_KEY)?;
        self.tenant_by_hash(&ApiKeyHash::of(api_key.as_bytes()))
    }

    /// The tenant that has an API key of that hash.
    pub(crate) fn tenant_by_hash(&self, key: &ApiKeyHash) -> Option<&Tenant> {
        self.tenants.get(self.tenant_by_key.get(key)?)
    }

    pub(crate) fn has_tenants(&self) -> bool {
        !self.tenants.is_empty()
    }

    /// Every rule, in no order.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.values()
    }

    /// Each rule with each limit that it may charge, for metrics to be ready before the first decision.
    pub(crate) fn rule_limits(&self) -> impl Iterator<Item = (&str, &LimitName)> {
        self.rules.values().chain(self.route_limits.values().flatten()).flat_map(|rule| {
            let plans = rule.plans.known().iter().filter_map(|name| self.plans.get(name));
            plans.flat_map(Plan::limits).map(|limit| (rule.id.as_str(), limit.name()))
        })
    }
}

impl From<&Config> for Policies {
    fn from(config: &Config) -> Self {
        let mut ordered: Vec<&Rule> = config.rules.iter().collect();
        // A stable sort: of two that ask for equally much, the one that was written first wins.
        ordered.sort_by_key(|rule| Reverse(rule.matcher.specificity()));
        let keys = |tenant: &Tenant| {
            let id = tenant.id.clone();
            tenant.api_keys.clone().into_iter().map(move |key| (key, id.clone()))
        };
        Self {
            plans: config.plans.iter().map(|plan| (plan.name().clone(), plan.clone())).collect(),
            by_specificity: ordered.into_iter().map(|rule| rule.id.clone()).collect(),
            by_domain: by_domain(&config.rules),
            rules: config.rules.iter().map(|rule| (rule.id.clone(), rule.clone())).collect(),
            route_limits: (config.routes.iter().filter(|route| !route.limits.is_empty()))
                .map(|route| (route.name.clone(), route.limits.clone()))
                .collect(),
            tenant_by_key: config.tenants.iter().flat_map(keys).collect(),
            tenants: config.tenants.iter().map(|tenant| (tenant.id.clone(), tenant.clone())).collect(),
            resp_password: config.resp.password.clone(),
            on_failure: config.store.on_failure,
            trusted_proxies: config.clients.trusted_proxies.clone(),
            ipv6_prefix: config.clients.ipv6_prefix,
        }
    }
}

fn by_domain(rules: &[Rule]) -> HashMap<String, Vec<SmolStr>, RandomState> {
    let mut found: HashMap<String, Vec<(&DescriptorMatch, SmolStr)>, RandomState> = HashMap::default();
    for rule in rules {
        if let Some(descriptor) = &rule.matcher.descriptor {
            found.entry(descriptor.domain.clone()).or_default().push((descriptor, rule.id.clone()));
        }
    }
    let ordered = |(domain, mut rules): (String, Vec<(&DescriptorMatch, SmolStr)>)| {
        rules.sort_by_key(|(descriptor, _)| Reverse(descriptor.specificity()));
        (domain, rules.into_iter().map(|(_, id)| id).collect())
    };
    found.into_iter().map(ordered).collect()
}
