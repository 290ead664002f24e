//! What the gateway forwards, and where to.

mod files;
mod headers;
mod overload;
mod refusals;
mod show;
mod upstreams;

use std::collections::HashSet;
use std::time::Duration;

use spile_core::PlanName;
use spile_gateway::{
    self as gateway, Adaptive, Balance, Concurrency, HealthCheck, Timeouts, UpstreamTlsFiles,
};
use spile_policy::{PathPattern, Rule};

pub(super) use self::files::RouteFiles;
use self::files::RouteTls;
use self::headers::HeaderWords;
pub(super) use self::refusals::RefusalWords;
use super::bounded;
use super::duration;
use super::file::{Faults, RouteFile, Spot};
use super::rules::{self, Known, check_plan};

/// Bytes of body that a route takes unless told otherwise.
const MAX_BODY: u64 = 64 << 20;

/// A path prefix and the services behind it.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct Route {
    /// What it is called in metrics, traces and the keys of its own limits.
    pub name: String,
    /// Requests whose path starts so are forwarded.
    pub path: String,
    /// Only for these hosts; for all where there is none.
    pub hosts: Vec<String>,
    /// The services that they go to.
    pub upstreams: Vec<String>,
    pub(crate) upstream_tls: RouteTls,
    /// How they are spread over the services.
    pub balance: Balance,
    /// How services are asked whether they are well.
    pub health_check: Option<HealthCheck>,
    /// Whether the prefix is taken off on the way.
    pub strip_prefix: bool,
    /// What takes the prefix's place on the way.
    pub rewrite_prefix: Option<String>,
    /// How long services may take.
    pub timeouts: Timeouts,
    /// How often a request is tried again where that is safe.
    pub retries: u8,
    /// Bytes of body that are taken.
    pub max_body: u64,
    /// The protocols that connections may be upgraded to.
    pub upgrades: Vec<String>,
    pub(crate) request_headers: HeaderWords,
    pub(crate) response_headers: HeaderWords,
    /// Whether clients are told of limits in header fields.
    pub rate_limit_headers: bool,
    pub(crate) refusals: RefusalWords,
    /// Whether callers without a known credential are turned away.
    pub require_api_key: bool,
    pub(crate) only_plans: Vec<PlanName>,
    pub(crate) limits: Vec<Rule>,
    /// Whether the service reports what a request cost.
    pub cost_from_response: bool,
    /// How limits shrink while the services fail or are slow.
    pub adaptive: Option<Adaptive>,
    /// Requests that each service has under way at once, and those that wait.
    pub concurrency: Option<Concurrency>,
}

/// Every route, with a name of its own, and with limits that have ids of their own among all rules.
pub(super) fn check_all(
    files: Vec<RouteFile>,
    rules: &[Rule],
    known: &Known<'_>,
    opened: &mut RouteFiles,
    faults: &mut Faults,
) -> Vec<Route> {
    let mut names = HashSet::new();
    let mut ids: HashSet<String> = rules.iter().map(|rule| rule.id.to_string()).collect();
    let mut routes = Vec::with_capacity(files.len());
    for file in files {
        let place = file.name.as_ref().or(file.path.as_ref()).map_or(&file.place, |text| &text.place).clone();
        for id in file.limits.iter().filter_map(|limit| limit.id.as_ref()) {
            if !ids.insert(id.value.clone()) {
                let message = format!("rule `{}` stands twice", id.value);
                faults.add(&id.place, message, "each rule and limit needs an id of its own");
            }
        }
        let Some(route) = Route::check(file, known, opened, faults) else { continue };
        if !names.insert(route.name.clone()) {
            let message = format!("two routes are called `{}`", route.name);
            faults.add(&place, message, "give one of them a `name` of its own");
        }
        routes.push(route);
    }
    routes
}

impl Route {
    fn check(
        file: RouteFile,
        known: &Known<'_>,
        opened: &mut RouteFiles,
        faults: &mut Faults,
    ) -> Option<Self> {
        let path = file.path.and_then(|path| check_path(path, faults));
        let upstreams = file.upstream.and_then(|upstreams| upstreams::check(upstreams, faults));
        let flag = |flag: Option<Spot<bool>>| flag.is_some_and(|flag| flag.value);
        let mut timeouts = Timeouts::default();
        let waits = [
            (&mut timeouts.first_byte, file.timeout),
            (&mut timeouts.connect, file.connect_timeout),
            (&mut timeouts.idle, file.idle_timeout),
        ];
        for (wait, text) in waits {
            set_wait(wait, text, faults);
        }
        let total = file.total_timeout.and_then(|text| duration::check(&text, duration::REQUEST, faults));
        timeouts.total = total;
        let hosts = upstreams::check_hosts(file.hosts, faults);
        let name = file.name.and_then(|name| check_name(name, faults));
        let route = Self {
            upstream_tls: opened.check_tls(&file.upstream_tls.unwrap_or_default(), faults),
            balance: file
                .balance
                .and_then(|word| upstreams::check_balance(&word, faults))
                .unwrap_or_default(),
            health_check: file.health_check.and_then(|check| overload::check_health(check, faults)),
            strip_prefix: flag(file.strip_prefix),
            rewrite_prefix: file.rewrite_prefix.and_then(|prefix| check_prefix(prefix, faults)),
            timeouts,
            retries: bounded::check(file.retries, 0..=5, faults).map_or(1, |retries| retries as u8),
            max_body: bounded::check_size(file.max_body, 0..=1 << 40, faults).unwrap_or(MAX_BODY),
            upgrades: upstreams::check_upgrades(file.upgrades, faults),
            request_headers: HeaderWords::check(file.request_headers, faults),
            response_headers: HeaderWords::check(file.response_headers, faults),
            refusals: RefusalWords::check(file.refusals, opened, faults),
            rate_limit_headers: file.rate_limit_headers.is_none_or(|flag| flag.value),
            require_api_key: flag(file.require_api_key),
            only_plans: file
                .only_plans
                .map(|plans| check_plans(&plans.value, known, faults))
                .unwrap_or_default(),
            limits: rules::check_limits(file.limits, known, faults),
            cost_from_response: flag(file.cost_from_response),
            adaptive: file.adaptive.map(|adaptive| overload::check_adaptive(adaptive, faults)),
            concurrency: file.concurrency.map(|cap| overload::check_concurrency(cap, faults)),
            path: path?,
            upstreams: upstreams?,
            name: String::new(),
            hosts,
        };
        let usual =
            || route.hosts.first().map_or_else(|| route.path.clone(), |host| host.clone() + &route.path);
        Some(Self { name: name.unwrap_or_else(usual), ..route })
    }

    /// Whether it says how TLS upstreams are met, and has none.
    pub(super) fn says_needless_tls(&self) -> bool {
        let tls = |upstream: &String| upstream.starts_with("https:");
        self.upstream_tls.own != UpstreamTlsFiles::default() && !self.upstreams.iter().any(tls)
    }

    /// The route as the gateway takes it.
    pub(crate) fn served(&self) -> anyhow::Result<gateway::Route> {
        let upstreams: Result<Vec<_>, _> = self.upstreams.iter().map(|url| url.parse()).collect();
        let mut served = gateway::Route::new(&self.path, upstreams?)?
            .named(&self.name)
            .balance(self.balance)
            .strip_prefix(self.strip_prefix)
            .timeouts(self.timeouts)
            .retries(self.retries)
            .max_body(self.max_body)
            .upgrades(self.upgrades.iter().map(String::as_str))
            .request_headers(self.request_headers.changes()?)
            .response_headers(self.response_headers.changes()?)
            .rate_limit_headers(self.rate_limit_headers)
            .refusals(self.refusals.pages.clone())
            .require_auth(self.require_api_key)
            .only_plans(self.only_plans.iter().map(PlanName::as_str))
            .cost_from_response(self.cost_from_response);
        if let Some(tls) = &self.upstream_tls.loaded {
            served = served.upstream_tls(tls);
        }
        for host in &self.hosts {
            served = served.host(host)?;
        }
        if let Some(prefix) = &self.rewrite_prefix {
            served = served.rewrite_prefix(prefix)?;
        }
        if let Some(check) = &self.health_check {
            served = served.health_check(check.clone());
        }
        if let Some(adaptive) = self.adaptive {
            served = served.adaptive(adaptive);
        }
        if let Some(cap) = self.concurrency {
            served = served.concurrency(cap);
        }
        Ok(served)
    }
}

fn set_wait(wait: &mut Duration, text: Option<Spot<String>>, faults: &mut Faults) {
    if let Some(span) = text.and_then(|text| duration::check(&text, duration::REQUEST, faults)) {
        *wait = span;
    }
}

fn check_plans(names: &[Spot<String>], known: &Known<'_>, faults: &mut Faults) -> Vec<PlanName> {
    names.iter().filter_map(|name| check_plan(name, known, faults)).collect()
}

fn check_name(Spot { value, place }: Spot<String>, faults: &mut Faults) -> Option<String> {
    let good = (1..=64).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic());
    if !good {
        faults.add(
            &place,
            format_args!("`{value}` is no name"),
            "1 to 64 letters, digits and signs, no spaces",
        );
    }
    good.then_some(value)
}

fn check_path(Spot { value, place }: Spot<String>, faults: &mut Faults) -> Option<String> {
    let checked =
        PathPattern::prefix(&value).map_err(|why| faults.add(&place, why, "for instance `/scores`"));
    checked.is_ok().then_some(value)
}

fn check_prefix(Spot { value, place }: Spot<String>, faults: &mut Faults) -> Option<String> {
    let route = gateway::Route::new("/", []).ok()?;
    let checked = route.rewrite_prefix(&value);
    checked.map_err(|why| faults.add(&place, why, "plain segments, as in `/v2/scores`")).ok()?;
    Some(value)
}
