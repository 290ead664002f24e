//! Everything in force at one moment, in one immutable value that is replaced as a whole, so that no request sees half
//! of a change.

mod builder;
mod named;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use http::HeaderName;
use smol_str::SmolStr;
use spile_core::{
    Amount, ChargeError, Cost, FailurePolicy, Limit, LimitName, NamedLimit, OneOrMany, Plan, PlanName,
};

pub use self::builder::{PolicyBuilder, PolicyError};
pub use self::named::AskError;
use crate::descriptor::{ANY, RawEntry};
use crate::facts::{AssumedPayer, CallerTenant, Credential, Facts};
use crate::key::{InvalidIdentity, ResolvedKey, header_key};
use crate::owed::{Chain, Enforced, Owed, PolicyRefusal};
use crate::path::PathPattern;
use crate::rule::{HostPattern, Rule, RulePlans};
use crate::tenant::{ApiKeyHash, Tenant};

/// The rule for requests that match no other rule.
pub const DEFAULT_RULE: &str = "default";
/// The rule and the limit of `CL.THROTTLE`. No plan may have this name, so that the buckets of the limit do not depend
/// on the plans.
pub const THROTTLE: &str = "cl.throttle";
/// The prefix of a tenant's key.
pub(crate) const TENANT_KEY: &str = "tenant:";
/// The namespace of limits that callers send under the name of a plan.
pub(crate) const OWN: &str = "own";
/// The namespace of limits that Envoy's descriptors contain, and their rule if no other matches.
pub(crate) const OVERRIDE: &str = "envoy.override";
/// The namespace of the limits on addresses that send unknown API keys.
const ADDRESS: &str = "by.address";
/// Names that plans must not have: they have another meaning in a rule, or are namespaces of limits.
pub const RESERVED_PLANS: [&str; 7] = ["tenant", "unlimited", "banned", OWN, THROTTLE, OVERRIDE, ADDRESS];
/// The plan of addresses that guess credentials, if no rule has a plan for anonymous callers.
const ANONYMOUS_PLAN: &str = "free";
/// An address may spend this many times its plan with unknown API keys.
const UNKNOWN_KEYS_FACTOR: u64 = 10;

pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;

/// Plans, rules and tenants. It computes what a request owes.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub(crate) plans: Map<PlanName, Plan>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) by_id: Map<SmolStr, usize>,
    pub(crate) enforced: RuleIndex,
    /// Rules in shadow mode are found apart, so that none displaces an enforced one.
    pub(crate) shadow: RuleIndex,
    /// Whether any rule replaces another.
    pub(crate) has_replacing: bool,
    /// The limits of routes, by the name of the route.
    pub(crate) route_limits: Map<String, Vec<Rule>>,
    pub(crate) tenants: Map<SmolStr, Tenant>,
    pub(crate) expects_tenants: bool,
    pub(crate) tenant_by_key: Map<ApiKeyHash, SmolStr>,
    pub(crate) on_failure: FailurePolicy,
    pub(crate) ipv6_prefix: u8,
}

/// Finds the rule for a request or a descriptor among the rules of one mode.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleIndex {
    /// The rules for HTTP requests, each with each of its hosts, the most specific first.
    by_specificity: Vec<(Option<HostPattern>, usize)>,
    /// The rules for descriptors of each domain, the most specific first.
    by_domain: Map<String, Vec<usize>>,
}

impl Policy {
    /// A builder without plans, rules and tenants.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder::new()
    }

    /// The plan of that name.
    pub fn plan(&self, name: &str) -> Option<&Plan> {
        self.plans.get(name)
    }

    /// The limit of this name, as its plan has it.
    pub fn limit(&self, name: &LimitName) -> Option<Limit> {
        let plan = self.plan(name.as_str().split('/').next()?)?;
        plan.limits().iter().find(|limit| limit.name() == name).map(|limit| *limit.limit())
    }

    /// Every plan, by name.
    pub fn plans(&self) -> Vec<&Plan> {
        let mut plans: Vec<_> = self.plans.values().collect();
        plans.sort_by_key(|plan| plan.name());
        plans
    }

    /// The rule of that id.
    pub fn rule(&self, id: &str) -> Option<&Rule> {
        self.by_id.get(id).map(|&at| &self.rules[at])
    }

    /// The limit of a route with that id, and the name of the route.
    pub fn route_limit(&self, id: &str) -> Option<(&str, &Rule)> {
        self.route_limits().find(|(_, limit)| limit.id == id)
    }

    /// Each limit of each route, with the name of the route.
    pub fn route_limits(&self) -> impl Iterator<Item = (&str, &Rule)> {
        self.route_limits
            .iter()
            .flat_map(|(route, limits)| limits.iter().map(move |limit| (route.as_str(), limit)))
    }

    /// The limits of a request's route that apply to it.
    pub fn route_limits_for(&self, facts: &Facts<'_>) -> impl Iterator<Item = &Rule> {
        let limits =
            facts.route.and_then(|route| self.route_limits.get(route)).map_or(&[][..], Vec::as_slice);
        limits.iter().filter(|limit| limit.matcher.matches(facts))
    }

    /// The tenant of that id.
    pub fn tenant(&self, id: &str) -> Option<&Tenant> {
        self.tenants.get(id)
    }

    /// Every tenant, by id.
    pub fn tenants(&self) -> Vec<&Tenant> {
        let mut tenants: Vec<_> = self.tenants.values().collect();
        tenants.sort_by_key(|tenant| &tenant.id);
        tenants
    }

    /// Whether there are tenants. Without any, API keys are ignored.
    pub fn has_tenants(&self) -> bool {
        self.expects_tenants || !self.tenants.is_empty()
    }

    /// The policy if the store fails, unless a rule has its own.
    pub const fn on_failure(&self) -> FailurePolicy {
        self.on_failure
    }

    /// Each rule with each limit that it may charge, so that metrics can be created before the first decision.
    pub fn rule_limits(&self) -> impl Iterator<Item = (&str, LimitName)> {
        self.rules.iter().chain(self.route_limits.values().flatten()).flat_map(|rule| {
            let plans = rule.plans.known().iter().filter_map(|name| self.plans.get(name));
            let name = |limit: &NamedLimit| limit.name().clone();
            let name = move |limit| if rule.shadow { name(limit).shadowed() } else { name(limit) };
            plans.flat_map(Plan::limits).map(move |limit| (rule.id.as_str(), name(limit)))
        })
    }

    /// Each rule, and the most limits that it may charge, including the rules in its `also` list, for the tenant whose
    /// plan has the most limits.
    pub fn most_limits(&self) -> impl Iterator<Item = (&Rule, usize)> {
        // Found once: there may be many rules, and many tenants.
        let of_a_tenant = self.tenants.values().map(|tenant| self.limits_of(&tenant.plan)).max().unwrap_or(0);
        let of_rule = move |rule: &Rule| {
            let known = rule.plans.known().iter().map(|plan| self.limits_of(plan)).sum();
            if matches!(rule.plans, RulePlans::Tenant { .. }) { of_a_tenant.max(known) } else { known }
        };
        self.rules.iter().map(move |rule| (rule, self.with_also(rule).into_iter().map(of_rule).sum()))
    }

    /// How many limits a plan has: none if there is no such plan.
    fn limits_of(&self, plan: &PlanName) -> usize {
        self.plans.get(plan).map_or(0, |plan| plan.limits().len())
    }

    /// The tenant with this API key, and its plan.
    pub fn tenant_of_key(&self, api_key: &[u8]) -> Option<CallerTenant> {
        if self.tenant_by_key.is_empty() {
            return None;
        }
        Some(self.tenants.get(self.tenant_by_key.get(&ApiKeyHash::of(api_key))?)?.caller())
    }

    /// The tenant that a signed token names. Its plan is the one that the token claims if that plan exists, else the
    /// plan of the tenant in this policy.
    pub fn tenant_of_claim(&self, id: &str, plan: Option<&str>) -> CallerTenant {
        let claimed = plan.and_then(|plan| self.plans.get(plan)).map(|plan| plan.name().clone());
        let known = || self.tenants.get(id).map(|tenant| tenant.plan.clone());
        CallerTenant { id: SmolStr::new(id), plan: claimed.or_else(known) }
    }

    /// Returns the charges of a request under the most specific enforced rule that matches it and under the limits of its route, and
    /// its charges under the most specific rule in shadow mode.
    pub fn owed(&self, facts: &Facts<'_>) -> Owed {
        self.owed_by_payer(facts, &AssumedPayer::default())
    }

    /// Returns the charges of a request under the rule of that id, or `None` if there is no such rule.
    pub fn owed_by_rule(&self, id: &str, facts: &Facts<'_>) -> Option<Owed> {
        Some(self.owed_under(Some(self.rule(id)?), None, facts, &AssumedPayer::default()))
    }

    /// Returns the charges of a request that is identified by the API key that it sends, checked or not. A caller without a tenant
    /// is keyed by the value that it sent, and its address is limited to ten times the plan, so that made-up keys gain
    /// little. If another rule than `default` matches the path, it is applied as it is.
    pub fn owed_by_api_key(&self, facts: &Facts<'_>, header: &HeaderName) -> Owed {
        let (rule, shadow) = (self.rule_for(facts), self.matching(&self.shadow, facts));
        let default = rule.filter(|rule| rule.id == DEFAULT_RULE && facts.tenant.is_none());
        let sent = facts.headers.get(header).filter(|value| !value.is_empty());
        let (Some(default), Some(sent), Some(address)) = (default, sent, facts.address) else {
            return self.owed_under(rule, shadow, facts, &AssumedPayer::default());
        };
        let payer = AssumedPayer { sent: Some((header, sent)), ..AssumedPayer::default() };
        let mut owed = self.owed_under(rule, shadow, facts, &payer);
        let address = ResolvedKey::address(address, self.ipv6_prefix);
        let cost = default.cost.amount();
        if let (Enforced::Charged(chain), None) = (&mut owed.enforced, &owed.refusal) {
            for limit in self.plans_of(default, None).flat_map(Plan::limits) {
                if let Err(why) = chain.charge_limit(&address, address_limit(limit), cost, false) {
                    return Owed { refusal: Some(PolicyRefusal::TooManyLimits(why)), ..Owed::default() };
                }
            }
        }
        owed
    }

    /// Whether a rule, or a limit of the route, limits requests on a route with this path and these hosts.
    pub fn limits_route(&self, route: &str, path: &PathPattern, hosts: &[HostPattern]) -> bool {
        let charges = |rule: &Rule| rule.plans != RulePlans::Unlimited;
        self.rules_of_route(route, path, hosts)
            .any(|rule| !rule.shadow && self.with_also(rule).into_iter().any(charges))
    }

    /// The smallest limit to which requests on a route with this path and these hosts may be charged an estimate, and the rule
    /// that charges it. Plans that depend on the tenant are not known, and if other rules are for the route, `default` is not
    /// taken to be.
    pub fn smallest_limit_of_route(
        &self,
        route: &str,
        path: &PathPattern,
        hosts: &[HostPattern],
    ) -> Option<(&Rule, &NamedLimit)> {
        let rules = || self.rules_of_route(route, path, hosts).filter(|rule| !rule.shadow);
        let is_other = |rule: &Rule| rule.id != DEFAULT_RULE && self.rule(&rule.id).is_some();
        let has_other = rules().any(is_other);
        let rules = rules().filter(|rule| !has_other || rule.id != DEFAULT_RULE);
        let limits_of =
            |rule| self.plans_of(rule, None).flat_map(Plan::limits).map(move |limit| (rule, limit));
        let rules = rules.flat_map(|rule| self.with_also(rule)).filter(|rule| !rule.fixed_cost);
        let limits = rules.flat_map(limits_of).filter(|(_, limit)| !limit.limit().is_concurrency());
        limits.min_by_key(|(_, limit)| limit.limit().capacity())
    }

    /// The rules, and the limits of the route, that may match requests on a route with this path and these hosts.
    fn rules_of_route<'p>(
        &'p self,
        route: &str,
        path: &PathPattern,
        hosts: &[HostPattern],
    ) -> impl Iterator<Item = &'p Rule> {
        let of_route = self.route_limits.get(route).into_iter().flatten();
        let for_host = move |rule: &Rule| {
            let meets = |own: &HostPattern| hosts.iter().any(|host| own.overlaps(host));
            rule.matcher.hosts.is_empty() || hosts.is_empty() || rule.matcher.hosts.iter().any(meets)
        };
        let for_path = move |rule: &Rule| {
            let pattern = rule.matcher.path.as_ref();
            rule.matcher.descriptor.is_none() && pattern.is_none_or(|pattern| pattern.overlaps(path))
        };
        of_route.chain(self.rules.iter().filter(move |rule| for_host(rule) && for_path(rule)))
    }

    /// The most specific enforced rule for a request, or `None` if none matches it.
    pub fn rule_for(&self, facts: &Facts<'_>) -> Option<&Rule> {
        self.matching(&self.enforced, facts)
    }

    fn matching(&self, index: &RuleIndex, facts: &Facts<'_>) -> Option<&Rule> {
        let fits = |(host, at): &&(Option<HostPattern>, usize)| {
            host.as_ref().is_none_or(|host| host.matches(facts.host))
                && self.rules[*at].matcher.matches_path(facts)
        };
        index.by_specificity.iter().find(fits).map(|&(_, at)| &self.rules[at])
    }

    /// The most specific rule of an index for a descriptor, and the entries that its key is made of.
    pub(crate) fn rule_for_descriptor<'e>(
        &'e self,
        index: &'e RuleIndex,
        domain: &[u8],
        entries: &[RawEntry<'e>],
    ) -> Option<(&'e Rule, Vec<RawEntry<'e>>)> {
        let own = std::str::from_utf8(domain).ok().and_then(|domain| index.by_domain.get(domain));
        let any = index.by_domain.get(ANY);
        own.into_iter().chain(any).flatten().find_map(|&at| {
            let rule = &self.rules[at];
            Some((rule, rule.matcher.descriptor.as_ref()?.matched(entries)?))
        })
    }

    /// A rule and the rules in its `also` list, transitively. Each occurs once. Those in shadow mode are left out beside an
    /// enforced one.
    pub(crate) fn with_also<'p>(&'p self, first: &'p Rule) -> OneOrMany<&'p Rule> {
        let mut rules = OneOrMany::one(first);
        let mut at = 0;
        while let Some(&rule) = rules.get(at) {
            let others = rule.also.iter().filter_map(|id| self.rule(id));
            for other in others.filter(|other| first.shadow || !other.shadow) {
                if !rules.iter().any(|there| there.id == other.id) {
                    rules.push(other);
                }
            }
            at += 1;
        }
        rules
    }

    pub(crate) fn failure_policy_of(&self, rule: &Rule) -> FailurePolicy {
        rule.on_failure.unwrap_or(self.on_failure)
    }

    /// The plans that apply to a tenant, or to an anonymous caller, under a rule. A tenant's own limits replace those
    /// of its plan.
    pub(crate) fn plans_of<'p>(
        &'p self,
        rule: &'p Rule,
        tenant: Option<&CallerTenant>,
    ) -> impl Iterator<Item = &'p Plan> {
        let of_tenant = tenant.and_then(|tenant| tenant.plan.as_ref());
        let (listed, single) = match (&rule.plans, of_tenant) {
            (RulePlans::Tenant { .. }, Some(plan)) => (&[][..], self.plans.get(plan)),
            (plans, _) => (plans.known(), None),
        };
        let plans = single.into_iter().chain(listed.iter().filter_map(|name| self.plans.get(name)));
        let own = self.own_plan(tenant);
        plans.map(move |plan| own.filter(|own| own.name() == plan.name()).unwrap_or(plan))
    }

    /// A tenant's plan with its own limits, if it has any.
    pub(crate) fn own_plan(&self, tenant: Option<&CallerTenant>) -> Option<&Plan> {
        self.tenants.get(&tenant?.id)?.own()
    }

    pub(crate) fn owed_by_payer(&self, facts: &Facts<'_>, payer: &AssumedPayer<'_>) -> Owed {
        self.owed_under(self.rule_for(facts), self.matching(&self.shadow, facts), facts, payer)
    }

    fn owed_under(
        &self,
        rule: Option<&Rule>,
        shadow: Option<&Rule>,
        facts: &Facts<'_>,
        payer: &AssumedPayer<'_>,
    ) -> Owed {
        let mut chain = Self::new_chain(facts);
        let mut watched = Vec::new();
        let paid = (rule.into_iter().chain(shadow).map(|rule| (rule, false)))
            .chain(self.route_limits_for(facts).map(|limit| (limit, true)))
            .try_for_each(|(rule, by_route)| {
                if !rule.shadow {
                    return self.charge_request(&mut chain, rule, by_route, facts, payer);
                }
                let mut chain = Self::new_chain(facts).shadow(true);
                let charged = self.charge_request(&mut chain, rule, by_route, facts, payer);
                // A rule in shadow mode that cannot be applied blocks nothing.
                if charged.is_ok() && !chain.is_empty() && chain.never_passes().is_none() {
                    watched.push(chain);
                }
                Ok(())
            });
        let never = || Some(PolicyRefusal::NeverPasses(chain.never_passes()?.above_capacity()));
        let needs_permit = || {
            let limit = chain.first_permit().filter(|_| !facts.holds_permits)?;
            Some(PolicyRefusal::NeedsPermit { limit: limit.name().clone() })
        };
        let mut refusal = paid.err().or_else(never).or_else(needs_permit);
        if refusal.is_some() {
            (chain, watched) = (Chain::new(None), Vec::new());
        }
        let unnamed = matches!(
            refusal,
            Some(
                PolicyRefusal::NoKey { .. }
                    | PolicyRefusal::NoIdentity { .. }
                    | PolicyRefusal::NoTenant { .. }
            )
        );
        let is_guess = match facts.credential {
            Credential::Accepted => false,
            Credential::Unknown => unnamed,
            Credential::Refused => true,
        };
        if is_guess && let Err(why) = self.charge_guess(&mut chain, rule, facts) {
            refusal = Some(PolicyRefusal::TooManyLimits(why));
        }
        Owed { enforced: chain.into(), shadow: watched, refusal }
    }

    /// A chain for a request, without rule and charges.
    fn new_chain(facts: &Facts<'_>) -> Chain {
        let tenant = facts.tenant.as_ref().map(|tenant| tenant.id.as_str());
        Chain::new(None).for_tenant(tenant).load(facts.load_factor)
    }

    /// Adds what a request owes under a rule and the rules in its `also` list.
    fn charge_request(
        &self,
        chain: &mut Chain,
        rule: &Rule,
        by_route: bool,
        facts: &Facts<'_>,
        payer: &AssumedPayer<'_>,
    ) -> Result<(), PolicyRefusal> {
        chain.under(rule);
        let key = |rule: &Rule| {
            let key = match payer.sent {
                Some((header, value)) if rule.id == DEFAULT_RULE => header_key(header, value).map(Some),
                _ => rule.key.resolve(facts, self.ipv6_prefix),
            };
            let key = key.map_err(|InvalidIdentity { place, why }| PolicyRefusal::NoIdentity {
                rule: rule.id.clone(),
                place,
                why,
            })?;
            let missing =
                || PolicyRefusal::NoKey { rule: rule.id.clone(), words: rule.key.words().join(", ") };
            let key = key.or_else(|| payer.key.clone()).ok_or_else(missing)?;
            Ok(match facts.route.filter(|_| by_route) {
                // A bucket for each client and route.
                Some(route) => ResolvedKey::on_route(key, route),
                None => key,
            })
        };
        let cost = |rule: &Rule| {
            let estimate = facts.estimate.filter(|_| !rule.fixed_cost);
            payer.cost.or(estimate).map(Cost::amount)
        };
        self.charge_rules(chain, rule, facts.tenant.as_ref(), key, cost)
    }

    /// Adds the charges of a rule and the rules in its `also` list, each for the key that `key` finds and at `cost`, or at the
    /// cost of the rule if that is `None`.
    pub(crate) fn charge_rules(
        &self,
        chain: &mut Chain,
        rule: &Rule,
        tenant: Option<&CallerTenant>,
        key: impl Fn(&Rule) -> Result<ResolvedKey, PolicyRefusal>,
        cost: impl Fn(&Rule) -> Option<Amount>,
    ) -> Result<(), PolicyRefusal> {
        for rule in self.with_also(rule) {
            match &rule.plans {
                RulePlans::Unlimited => continue,
                RulePlans::Banned => return Err(PolicyRefusal::Banned { rule: rule.id.clone() }),
                RulePlans::Tenant { anonymous: None }
                    if tenant.is_none_or(|tenant| tenant.plan.is_none()) =>
                {
                    return Err(PolicyRefusal::NoTenant { rule: rule.id.clone() });
                }
                _ => {}
            }
            let (key, rule_cost) = (key(rule)?, rule.cost.amount());
            let cost = cost(rule).unwrap_or(rule_cost);
            chain.tighten_failure_policy(self.failure_policy_of(rule));
            for plan in self.plans_of(rule, tenant) {
                let charged = chain.charge_plan(&key, plan, cost, rule_cost, rule.fixed_cost);
                charged.map_err(PolicyRefusal::TooManyLimits)?;
            }
        }
        Ok(())
    }

    /// Charges a credential that is not accepted to the address, unless the address is charged already: one token of
    /// the plan for anonymous callers. Without this, a rule whose key is what callers send would give each guess a new
    /// bucket.
    fn charge_guess(
        &self,
        chain: &mut Chain,
        rule: Option<&Rule>,
        facts: &Facts<'_>,
    ) -> Result<(), ChargeError> {
        let (Some(plan), Some(address)) = (self.anonymous_plan(rule), facts.address) else { return Ok(()) };
        // A guess is over at once, so that a concurrency would not limit it.
        let counts = |plan: &&Plan| plan.limits().iter().any(|limit| !limit.limit().is_concurrency());
        let Some(plan) = Some(plan).filter(counts).or_else(|| self.plans.get(ANONYMOUS_PLAN).filter(counts))
        else {
            return Ok(());
        };
        let key = ResolvedKey::address(address, self.ipv6_prefix);
        if chain.pays(&key) {
            return Ok(());
        }
        if chain.is_empty() {
            *chain = Chain::new(Some(rule.map_or(DEFAULT_RULE, |rule| &rule.id)));
        }
        chain.tighten_failure_policy(rule.map_or(self.on_failure, |rule| self.failure_policy_of(rule)));
        let limits = plan.limits().iter().filter(|limit| !limit.limit().is_concurrency());
        limits.cloned().try_for_each(|limit| chain.charge_limit(&key, limit, 1, false))
    }

    fn anonymous_plan(&self, rule: Option<&Rule>) -> Option<&Plan> {
        let anonymous = |rule: &Rule| match &rule.plans {
            RulePlans::Tenant { anonymous } => anonymous.clone(),
            _ => None,
        };
        let named = rule.and_then(anonymous).or_else(|| self.rule(DEFAULT_RULE).and_then(anonymous));
        named.and_then(|name| self.plans.get(&name)).or_else(|| self.plans.get(ANONYMOUS_PLAN))
    }
}

/// The limit of an address that sends unknown API keys: ten times the limit of one key.
fn address_limit(limit: &NamedLimit) -> NamedLimit {
    let whole = limit.limit();
    let most =
        if whole.is_concurrency() { Amount::from_tokens(Limit::MAX_PERMITS) } else { Limit::MAX_AMOUNT };
    let tenfold = |amount: Amount| (amount * UNKNOWN_KEYS_FACTOR).min(most);
    let (refill, period) = whole.rate().map_or_else(Default::default, |rate| (rate.refill(), rate.period()));
    let held = whole.resized(tenfold(whole.capacity()), tenfold(refill), period);
    let namespace = PlanName::new(ADDRESS).expect("it is a name");
    // The full name keeps limits of two plans apart that have the same own name.
    let name = limit.name().as_str().replace('/', "..");
    let name = LimitName::within(&namespace, &name)
        .or_else(|_| LimitName::within(&namespace, &format!("{:016x}", limit.tag())))
        .expect("sixteen digits are a name");
    NamedLimit::new(name, held.unwrap_or(*whole))
}
