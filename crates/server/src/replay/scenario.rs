//! One configuration, and its decisions about the requests of a log.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderName, Method};
use spile_core::{Decision, LimitName, Micros};
use spile_gateway::RouteFinder;
use spile_policy::{Chain, Credential, Enforced, Facts, Owed, Policy, PolicyRefusal, single_value};
use spile_tower::client::{ClientAddress, Forwarding};

use super::clock::LogClock;
use super::line::{LogRecord, LoggedRequest, MalformedRequest, X_FORWARDED_FOR};
use super::needed_facts::NeededFacts;
use super::tally::{ReplayOutcome, ReplayTally};
use super::text::grouped;
use crate::auth::X_API_KEY;
use crate::config::{Clients, Config, RouteConfig, StoreUrl};
use crate::decide::{Clocks, Decider, ServerStore};
use crate::observe::metrics::Telemetry;

const WRONG_KEY: &str = "no tenant has the API key";
/// Stands for the rule of a request that is refused under none.
const NO_RULE: &str = "-";

/// A configuration under which a log is replayed. Its buckets are separate, and follow the log's clock.
pub(super) struct Scenario {
    /// The file's name.
    pub(super) name: String,
    pub(super) tally: ReplayTally,
    decider: Decider,
    policy: Arc<Policy>,
    clients: Clients,
    address: ClientAddress,
    finder: RouteFinder,
    /// The names of the routes, by their index.
    routes: Vec<String>,
    needed: NeededFacts,
}

/// A request that was limited or refused, or would have been.
pub(super) struct LimitedRequest<'a> {
    /// The configuration's name.
    pub(super) config: &'a str,
    pub(super) outcome: ReplayOutcome,
    pub(super) rule: &'a str,
    pub(super) limit: Option<&'a LimitName>,
    pub(super) key: &'a str,
    pub(super) wait: Duration,
}

impl Scenario {
    pub(super) fn new(name: String, mut config: Config, clock: &LogClock) -> anyhow::Result<Self> {
        // The buckets of a replay are in memory, and nothing watches them.
        config.store.url = StoreUrl::Memory;
        config.store.path = None;
        config.observe.enabled = false;
        let clocks = Clocks::all(clock.clone());
        let telemetry = Telemetry::new(&config.observe)?;
        let store = ServerStore::new(&config.store, &clocks, None, &telemetry)?;
        let decider = Decider::new(&config, store, clocks, telemetry.watch().clone());
        let policy = decider.policy();
        let rules = || config.rules.iter().chain(config.routes.iter().flat_map(|route| &route.limits));
        let served = config.routes.iter().map(RouteConfig::served).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            name,
            tally: ReplayTally::new(rules().filter(|rule| rule.matcher.descriptor.is_none())),
            needed: NeededFacts::new(rules(), policy.has_tenants()),
            address: ClientAddress::reported_in(
                Forwarding::XForwardedFor,
                config.clients.trusted_proxies.clone(),
            ),
            finder: RouteFinder::new(&served),
            routes: config.routes.iter().map(|route| route.name.clone()).collect(),
            clients: config.clients,
            decider,
            policy,
        })
    }

    /// The header fields that it needs.
    pub(super) fn headers(&self) -> impl Iterator<Item = HeaderName> {
        let usual = [X_API_KEY, X_FORWARDED_FOR, self.clients.principal_header.clone()];
        self.needed.headers().cloned().chain(usual)
    }

    /// Decides about a request at the time of the clock, and returns whether it is limited or refused.
    pub(super) fn decide(
        &mut self,
        record: &LogRecord,
        at: Micros,
        mut tell: impl FnMut(&LimitedRequest<'_>),
    ) {
        let request = match self.admitted(record) {
            Ok(request) => request,
            Err(MalformedRequest(why)) => {
                *self.tally.malformed.entry(why).or_default() += 1;
                return;
            }
        };
        let found = self.finder.find(&record.host, request.path.matched());
        let route = found.map(|index| &*self.routes[index]);
        // Without routes, another proxy is in front.
        if route.is_none() && !self.finder.is_empty() {
            self.tally.unrouted += 1;
            return;
        }
        let LogFacts { mut facts, has_tenant, has_principal, is_wrong_key } = self.facts(record, request);
        facts.route = route;
        let owed = self.policy.owed(&facts);
        self.needed.note(record, has_tenant, has_principal);
        // The gateway knows every key that it forwards. Another proxy may ask about keys that are not Spile's.
        let refused = owed.refusal.as_ref().map(refusal_kind);
        let refused = refused.or((is_wrong_key && route.is_some()).then_some(WRONG_KEY));
        let outcome = self.charge(&owed, refused, at, &mut tell);
        self.tally.request(outcome, at);
    }

    /// Notes for readers of the figures.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.needed.notes(&self.tally);
        let evicted = self.decider.embedded_usage().evicted;
        if evicted > 0 {
            notes.push(format!(
                "{} buckets were evicted before they were full, because `store.max_keys` was reached: their keys were \
                 limited less than they should have been",
                grouped(evicted)
            ));
        }
        notes
    }

    /// The request, unless a server refuses it before it asks a rule.
    fn admitted<'r>(&self, record: &'r LogRecord) -> Result<&'r LoggedRequest, MalformedRequest> {
        let request = record.request.as_ref().map_err(|why| *why)?;
        if !self.finder.is_empty() && request.method == Method::TRACE {
            return Err(MalformedRequest("the gateway forwards no TRACE"));
        }
        Ok(request)
    }

    /// The facts of a line, as a door reads them from a request.
    fn facts<'a>(&self, record: &'a LogRecord, request: &'a LoggedRequest) -> LogFacts<'a> {
        let (headers, policy) = (&record.headers, &self.policy);
        let api_key = headers.get(X_API_KEY);
        let named = record.tenant.as_deref().map(|id| policy.tenant_of_claim(id, None));
        let tenant = named.or_else(|| api_key.and_then(|key| policy.tenant_of_key(key.as_bytes())));
        let is_wrong_key = api_key.is_some() && tenant.is_none() && policy.has_tenants();
        let is_trusted = || record.peer.is_some_and(|peer| self.clients.trusted_proxies.contain(peer));
        let reported = || single_value(headers, &self.clients.principal_header).filter(|_| is_trusted());
        let principal = record.user.as_deref().or_else(reported);
        let credential = match is_wrong_key {
            false => Credential::Accepted,
            true if self.finder.is_empty() => Credential::Unknown,
            true => Credential::Refused,
        };
        let has_tenant = tenant.is_some() || api_key.is_some();
        let has_principal = principal.is_some();
        let facts = Facts {
            host: &record.host,
            address: record.peer.map(|peer| self.address.seen_by(peer, headers)),
            principal,
            credential,
            tenant,
            // A log does not record when requests end, so every request counts as finished when the next one arrives.
            holds_permits: true,
            ..Facts::new(&request.method, request.path.matched(), headers)
        };
        LogFacts { facts, has_tenant, has_principal, is_wrong_key }
    }

    /// Charges what a request owes, and counts the outcome. `refused` is the reason why it does not pass even if it can pay.
    fn charge(
        &mut self,
        owed: &Owed,
        refused: Option<&'static str>,
        at: Micros,
        tell: &mut impl FnMut(&LimitedRequest<'_>),
    ) -> ReplayOutcome {
        let ruling = self.decider.allow(owed).now_or_never().expect("the embedded store answers at once");
        let limited = !ruling.allowed();
        let mut outcome = if limited { ReplayOutcome::Limited } else { ReplayOutcome::Allowed };
        let counts = limited || refused.is_none();
        let enforced = match (&owed.enforced, ruling.enforced.decision()) {
            (Enforced::Charged(chain), Some(decision)) => Some((chain, decision)),
            _ => None,
        };
        if let Some((chain, decision)) = enforced.filter(|_| counts) {
            self.count(chain, decision, outcome, at, tell);
        }
        if let Some(why) = refused.filter(|_| !limited) {
            outcome = ReplayOutcome::Refused;
            let charged = || enforced.and_then(|(chain, _)| chain.rule());
            let rule = owed.refusal.as_ref().and_then(refusing_rule).or_else(charged).unwrap_or(NO_RULE);
            self.tally.under_rule(rule, false, outcome, at);
            self.tally.refusal(rule, why);
            let (config, wait) = (&*self.name, Duration::ZERO);
            tell(&LimitedRequest { config, outcome, rule, limit: None, key: "", wait });
        }
        for (chain, watched) in owed.shadow.iter().zip(&ruling.shadow).filter(|_| counts) {
            let would_limit = !watched.would_allow();
            let own = if would_limit { ReplayOutcome::WouldLimit } else { ReplayOutcome::Allowed };
            self.count(chain, &watched.decision, own, at, tell);
            if would_limit && outcome == ReplayOutcome::Allowed {
                outcome = own;
            }
        }
        if owed.is_empty() && refused.is_none() {
            self.tally.unlimited += 1;
        }
        outcome
    }

    fn count(
        &mut self,
        chain: &Chain,
        decision: &Decision,
        outcome: ReplayOutcome,
        at: Micros,
        tell: &mut impl FnMut(&LimitedRequest<'_>),
    ) {
        let rule = chain.rule().unwrap_or_default();
        self.tally.under_rule(rule, chain.is_shadow(), outcome, at);
        if outcome == ReplayOutcome::Allowed {
            return;
        }
        let (binding, charges) = (decision.binding(), chain.charges());
        let key = charges[decision.binding_index()].key();
        let wait = binding.retry_after();
        self.tally.limit(rule, binding.name(), key.as_str(), at, wait);
        tell(&LimitedRequest {
            config: &self.name,
            outcome,
            rule,
            limit: Some(binding.name()),
            key: key.as_str(),
            wait,
        });
    }
}

/// The facts of a request.
struct LogFacts<'a> {
    facts: Facts<'a>,
    /// Whether the line names a tenant, by name or by a key.
    has_tenant: bool,
    has_principal: bool,
    /// Whether no tenant has the API key.
    is_wrong_key: bool,
}

/// The kind of refusal, without the values of the request.
const fn refusal_kind(why: &PolicyRefusal) -> &'static str {
    match why {
        PolicyRefusal::NoKey { .. } => "the request has none of the rule's keys",
        PolicyRefusal::NoIdentity { .. } => "the key of the request is not a valid identity",
        PolicyRefusal::NoTenant { .. } => "the rule is only for tenants",
        PolicyRefusal::NeverPasses(_) => "the request costs more than a limit holds",
        PolicyRefusal::Banned { .. } => "the rule denies every request",
        _ => "too many limits apply",
    }
}

/// The rule that refuses, if it is known.
fn refusing_rule(why: &PolicyRefusal) -> Option<&str> {
    match why {
        PolicyRefusal::NoKey { rule, .. }
        | PolicyRefusal::NoIdentity { rule, .. }
        | PolicyRefusal::NoTenant { rule }
        | PolicyRefusal::Banned { rule } => Some(rule),
        _ => None,
    }
}
