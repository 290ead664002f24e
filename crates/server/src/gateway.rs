//! The `gateway` listener: the server's plans, rules and tenants before the routes of the file, of one moment each time.

use std::sync::Arc;

use foldhash::HashMap;
use http::request::Parts;
use parking_lot::Mutex;
use smol_str::SmolStr;
use spile_core::{Clock, Plan, PlanName, PlanRegistry};
use spile_gateway::{ApiKeyHash, Gateway, Rule, Rulebook, Rules, Settings, TenantRegistry};
use spile_observe::trace::Tracer;
use spile_tower::key::{ClientIp, Joined, KeyResolver, MatchedRoute, ResolvedKey, Route, Tenant};
use spile_tower::{PlanNames, PlanResolver};

use crate::config::{Clients, Config};
use crate::decider::Decider;
use crate::key_list::KeyList;
use crate::matcher::Matcher;
use crate::metrics::Telemetry;
use crate::policies::Policies;
use crate::rule::{Rule as OwnRule, RulePlans};
use crate::store::AnyStore;
use crate::tenant;

/// The gateway, and what it was last told.
pub(crate) struct Front {
    pub(crate) gateway: Gateway<AnyStore>,
    telemetry: Telemetry,
    /// The settings in force, as the file would have them, but for rules and tenants.
    told: Mutex<String>,
}

impl Front {
    /// The gateway that the configuration asks for, if it asks for one.
    pub(crate) fn new(
        config: &Config,
        decider: &Decider,
        clock: Arc<dyn Clock>,
        telemetry: &Telemetry,
        tracer: Option<&Tracer>,
    ) -> anyhow::Result<Option<Self>> {
        if config.listen.gateway.is_none() {
            return Ok(None);
        }
        let settings = telemetry.register(|| settings(config, &decider.policies()))?;
        let mut builder = Gateway::builder(decider.limiter())
            .clock(clock)
            .bounds(config.gateway.bounds.clone())
            .roots(config.gateway.roots.clone())
            .settings(settings);
        if let Some(tracer) = tracer {
            builder = builder.tracer(tracer.clone());
        }
        if let Some(tls) = &config.gateway.tls {
            builder = builder.tls(tls.tls.clone());
        }
        let gateway = telemetry.register(|| builder.build())?;
        telemetry.routes().follow(&config.routes);
        Ok(Some(Self { gateway, telemetry: telemetry.clone(), told: Mutex::new(words(config)) }))
    }

    /// Follows the configuration, and the policies made of it, in what a gateway can change while it runs. A request
    /// sees all of it or none.
    pub(crate) fn follow(&self, config: &Config, policies: &Arc<Policies>) {
        let words = words(config);
        let mut told = self.told.lock();
        if *told == words {
            self.gateway.replace_rules(Compiled::new(policies), TenantsOf(Arc::clone(policies)));
            return;
        }
        let replaced = self.telemetry.register(|| Ok(self.gateway.replace(settings(config, policies)?)?));
        match replaced {
            Ok(()) => {
                self.telemetry.routes().follow(&config.routes);
                *told = words;
            }
            Err::<_, anyhow::Error>(why) => {
                tracing::error!(target: "spile::reload", "the gateway keeps its routes and rules: {why}");
            }
        }
    }
}

/// What the gateway follows, written out: settings that read the same are the same.
fn words(config: &Config) -> String {
    use std::fmt::Write;
    let mut words = format!("{:?} {}\n", config.clients.trusted_words, config.clients.ipv6_prefix);
    if let Some(jwt) = &config.gateway.jwt {
        let _ = write!(words, "{jwt}");
    }
    for route in &config.routes {
        let _ = write!(words, "{route}");
    }
    words
}

fn settings(config: &Config, policies: &Arc<Policies>) -> anyhow::Result<Settings> {
    let Clients { trusted_proxies, ipv6_prefix, .. } = &config.clients;
    let mut settings = Settings::new()
        .trusted_proxies(trusted_proxies.clone())
        .ipv6_prefix(*ipv6_prefix)
        .rulebook(Compiled::new(policies))
        .tenants(TenantsOf(Arc::clone(policies)));
    if let Some(jwt) = &config.gateway.jwt {
        settings = settings.jwt(Arc::clone(&jwt.verifier));
    }
    for route in &config.routes {
        settings = settings.route(route.served()?);
    }
    Ok(settings)
}

/// The tenants of these policies.
struct TenantsOf(Arc<Policies>);

impl TenantRegistry for TenantsOf {
    fn tenant(&self, key: &ApiKeyHash) -> Option<Arc<Tenant>> {
        let tenant = self.0.tenant_by_hash(&tenant::ApiKeyHash::from_bytes(key.bytes()))?;
        Some(Arc::new(Tenant::new(tenant.id.as_str()).on_plan(tenant.plan.as_str())))
    }

    fn has_tenants(&self) -> bool {
        self.0.has_tenants()
    }
}

/// The rules of some policies, in the gateway's own form.
struct Compiled {
    of: Arc<Policies>,
    rules: HashMap<SmolStr, Arc<Rule>>,
    /// The limits of routes that have some.
    of_routes: HashMap<String, Vec<(Matcher, Arc<Rule>)>>,
}

impl Rulebook for Compiled {
    fn rules(&self, request: &Parts, path: &str) -> Rules {
        let mut rules = Rules::new();
        if let Some(rule) = self.of.rule_for(&request.method, path) {
            let ids = std::iter::once(&rule.id).chain(&rule.also);
            rules.extend(ids.filter_map(|id| self.rules.get(id).cloned()));
        }
        let fits = |matcher: &Matcher| matcher.matches(&request.method, path);
        let limits = self.of_route(request).iter().filter(|(matcher, _)| fits(matcher));
        rules.extend(limits.map(|(_, limit)| Arc::clone(limit)));
        rules
    }
}

impl Compiled {
    fn new(policies: &Arc<Policies>) -> Self {
        let rules = policies
            .rules()
            .map(|rule| (rule.id.clone(), Arc::new(compile(rule, Keys(rule.key.clone()), policies))));
        let limit = |limit: &OwnRule| {
            let rule = compile(limit, route_keys(&limit.key, policies), policies);
            (limit.matcher.clone(), Arc::new(rule))
        };
        let of_routes = policies
            .route_limits()
            .map(|(route, limits)| (route.to_owned(), limits.iter().map(limit).collect()));
        Self { of: Arc::clone(policies), rules: rules.collect(), of_routes: of_routes.collect() }
    }

    /// The limits of the route that the request is on.
    fn of_route(&self, request: &Parts) -> &[(Matcher, Arc<Rule>)] {
        if self.of_routes.is_empty() {
            return &[];
        }
        let Some(Route(name)) = request.extensions.get() else { return &[] };
        self.of_routes.get(&**name).map_or(&[], Vec::as_slice)
    }
}

fn compile(rule: &OwnRule, key: impl KeyResolver + 'static, policies: &Arc<Policies>) -> Rule {
    let tenants_only = matches!(rule.plans, RulePlans::Tenant { anonymous: None });
    let plans = Plans { named: rule.plans.clone(), policies: Arc::clone(policies) };
    Rule::new(&rule.id, key, plans)
        .registry(PlansOf(Arc::clone(policies)))
        .cost(rule.cost)
        .on_failure(rule.on_failure.unwrap_or(policies.on_failure))
        .shadow(rule.shadow)
        .tenants_only(tenants_only)
}

/// A bucket for each client and route. Whoever none of the resolvers knows counts by address, as everywhere.
fn route_keys(keys: &KeyList, policies: &Policies) -> Joined {
    let address = ClientIp::behind(policies.trusted_proxies.clone()).ipv6_prefix(policies.ipv6_prefix);
    let client = Keys(keys.clone()).or(address);
    Joined::new([Box::new(client) as Box<dyn KeyResolver>, Box::new(MatchedRoute)])
}

struct Keys(KeyList);

impl KeyResolver for Keys {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        self.0.resolve(request)
    }
}

/// The plans that the rule's own policies have, whatever others have taken their place since.
struct PlansOf(Arc<Policies>);

impl PlanRegistry for PlansOf {
    fn plan(&self, name: &str) -> Option<Plan> {
        self.0.plan(name).cloned()
    }
}

struct Plans {
    named: RulePlans,
    policies: Arc<Policies>,
}

impl Plans {
    /// The plan of the tenant. A token's claim may name one that is not there; the tenant's own then counts.
    fn of_tenant<'r>(&'r self, tenant: &'r Tenant) -> Option<&'r str> {
        let known = tenant.plan().filter(|plan| self.policies.plan(plan).is_some());
        known.or_else(|| self.policies.tenant(tenant.id()).map(|tenant| tenant.plan.as_str()))
    }
}

impl PlanResolver for Plans {
    fn plans<'r>(&'r self, request: &'r Parts) -> PlanNames<'r> {
        let of_tenant = request.extensions.get::<Tenant>().and_then(|tenant| self.of_tenant(tenant));
        match (&self.named, of_tenant) {
            (RulePlans::Tenant { .. }, Some(plan)) => PlanNames::from(plan),
            (plans, _) => plans.known().iter().map(PlanName::as_str).collect(),
        }
    }
}
