//! The `gateway` listener: the server's plans, rules and tenants, as they are at the moment, before the routes of the
//! file.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use foldhash::HashMap;
use http::request::Parts;
use smol_str::SmolStr;
use spile_core::{Clock, PlanName};
use spile_gateway::{
    Adaptive, ApiKeyHash, Concurrency, Gateway, HealthCheck, JwtVerifier, Route, Rule, Rulebook, Rules,
    TenantRegistry, Timeouts, Tls, Upstream,
};
use spile_tower::key::{KeyResolver, ResolvedKey, Tenant};
use spile_tower::{PlanNames, PlanResolver};

use crate::config::{self, Config};
use crate::decider::Decider;
use crate::key_list::KeyList;
use crate::metrics::Telemetry;
use crate::policies::Policies;
use crate::rule::{Rule as OwnRule, RulePlans};
use crate::store::AnyStore;
use crate::tenant;

/// The gateway that the configuration asks for, if it asks for one.
pub(crate) fn build(
    config: &Config,
    decider: &Decider,
    clock: Arc<dyn Clock>,
    telemetry: &Telemetry,
) -> anyhow::Result<Option<Gateway<AnyStore>>> {
    if config.listen.gateway.is_none() {
        return Ok(None);
    }
    let policies = decider.shared_policies();
    let mut builder = Gateway::builder(decider.limiter())
        .clock(clock)
        .trusted_proxies(config.clients.trusted_proxies.clone())
        .ipv6_prefix(config.clients.ipv6_prefix)
        .tenants(LiveTenants(Arc::clone(&policies)))
        .rulebook(LiveRules { policies, compiled: ArcSwapOption::empty() });
    for route in &config.routes {
        builder = builder.route(route_of(route)?);
    }
    if let Some((chain, key)) = &config.gateway.tls {
        builder = builder.tls(Tls::from_files(chain, key)?);
    }
    if let Some(jwt) = &config.gateway.jwt {
        builder = builder.jwt(verifier(jwt)?);
    }
    Ok(Some(telemetry.register(|| builder.build())?))
}

fn route_of(route: &config::Route) -> anyhow::Result<Route> {
    let upstreams: Vec<Upstream> = route.upstreams.iter().map(|url| url.parse()).collect::<Result<_, _>>()?;
    let mut timeouts = Timeouts::default();
    (timeouts.connect, timeouts.first_byte, timeouts.idle) =
        (route.connect_timeout, route.timeout, route.idle_timeout);
    let mut served = Route::new(&route.path, upstreams)?
        .balance(route.balance)
        .strip_prefix(route.strip_prefix)
        .timeouts(timeouts)
        .retries(route.retries)
        .max_body(route.max_body)
        .require_auth(route.require_api_key)
        .only_plans(route.only_plans.iter().map(String::as_str))
        .cost_from_response(route.cost_from_response);
    for host in &route.hosts {
        served = served.host(host)?;
    }
    if let Some(prefix) = &route.rewrite_prefix {
        served = served.rewrite_prefix(prefix)?;
    }
    if let Some(path) = &route.health_path {
        served = served.health_check(HealthCheck::new(path.clone()));
    }
    if route.adaptive {
        served = served.adaptive(Adaptive::default());
    }
    if let Some(most) = route.max_concurrency {
        let mut cap = Concurrency::default();
        cap.per_upstream = usize::try_from(most)?;
        served = served.concurrency(cap);
    }
    Ok(served)
}

fn verifier(jwt: &config::JwtConfig) -> anyhow::Result<JwtVerifier> {
    let mut verifier = JwtVerifier::from_file(&jwt.key_file, jwt.kind)?.leeway(jwt.leeway);
    if let Some(issuer) = &jwt.issuer {
        verifier = verifier.issuer(issuer);
    }
    if let Some(audience) = &jwt.audience {
        verifier = verifier.audience(audience);
    }
    if let Some(claim) = &jwt.tenant_claim {
        verifier = verifier.tenant_claim(claim);
    }
    if let Some(claim) = &jwt.plan_claim {
        verifier = verifier.plan_claim(claim);
    }
    Ok(verifier)
}

/// The tenants of the moment.
struct LiveTenants(Arc<ArcSwap<Policies>>);

impl TenantRegistry for LiveTenants {
    fn tenant(&self, key: &ApiKeyHash) -> Option<Arc<Tenant>> {
        let policies = self.0.load();
        let tenant = policies.tenant_by_hash(&tenant::ApiKeyHash::from_bytes(key.bytes()))?;
        Some(Arc::new(Tenant::new(tenant.id.as_str()).on_plan(tenant.plan.as_str())))
    }

    fn has_tenants(&self) -> bool {
        self.0.load().has_tenants()
    }
}

/// The rules of the moment, in the gateway's own form.
struct LiveRules {
    policies: Arc<ArcSwap<Policies>>,
    compiled: ArcSwapOption<Compiled>,
}

/// Rules, and the policies that they were made of.
struct Compiled {
    of: Arc<Policies>,
    rules: HashMap<SmolStr, Arc<Rule>>,
}

impl Rulebook for LiveRules {
    fn rules(&self, request: &Parts, path: &str) -> Rules {
        let policies = self.policies.load();
        let Some(rule) = policies.rule_for(&request.method, path) else { return Rules::new() };
        let compiled = self.compiled(&policies);
        let ids = std::iter::once(&rule.id).chain(&rule.also);
        ids.filter_map(|id| compiled.rules.get(id).cloned()).collect()
    }
}

impl LiveRules {
    /// The rules of these policies. They are made once, by the first request after a change.
    fn compiled(&self, policies: &Arc<Policies>) -> Arc<Compiled> {
        let standing = self.compiled.load_full().filter(|compiled| Arc::ptr_eq(&compiled.of, policies));
        standing.unwrap_or_else(|| {
            let rules = policies.rules().map(|rule| (rule.id.clone(), Arc::new(compile(rule, policies))));
            let compiled = Arc::new(Compiled { of: Arc::clone(policies), rules: rules.collect() });
            self.compiled.store(Some(Arc::clone(&compiled)));
            compiled
        })
    }
}

fn compile(rule: &OwnRule, policies: &Policies) -> Rule {
    let tenants_only = matches!(rule.plans, RulePlans::Tenant { anonymous: None });
    Rule::new(&rule.id, Keys(rule.key.clone()), Plans(rule.plans.clone()))
        .cost(rule.cost)
        .on_failure(rule.on_failure.unwrap_or(policies.on_failure))
        .shadow(rule.shadow)
        .tenants_only(tenants_only)
}

struct Keys(KeyList);

impl KeyResolver for Keys {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        self.0.resolve(request)
    }
}

struct Plans(RulePlans);

impl PlanResolver for Plans {
    fn plans<'r>(&'r self, request: &'r Parts) -> PlanNames<'r> {
        let of_tenant = request.extensions.get::<Tenant>().and_then(Tenant::plan);
        match (&self.0, of_tenant) {
            (RulePlans::Tenant { .. }, Some(plan)) => PlanNames::from(plan),
            (plans, _) => plans.known().iter().map(PlanName::as_str).collect(),
        }
    }
}
