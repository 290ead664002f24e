//! The routes of the gateway.

mod files;
mod headers;
mod refusals;
mod spec;

use std::collections::HashSet;

use http::uri::PathAndQuery;
use spile_core::PlanName;
use spile_gateway::{self as gateway, Adaptive, Estimate, HealthCheck, RouteConcurrency, Upstream};
use spile_policy::{HostPattern, PathPattern, Rule};

pub(super) use self::files::RouteFiles;
use self::files::RouteTls;
use self::headers::changes;
pub(super) use self::refusals::{Refusals, RefusalsSpec};
pub(super) use self::spec::{RouteSpec, UpstreamTlsSpec};
use super::rule::{self, Known, RuleSpec};
use super::source::{Faults, Location};
use super::value::{TextOrTexts, each};

/// A path prefix and the services behind it.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// The name in metrics, traces and the keys of the route's limits.
    pub name: String,
    /// The path prefix of requests that are forwarded.
    pub path: String,
    /// Only requests for these hosts; all requests if the list is empty.
    pub hosts: Vec<String>,
    /// The services that requests go to.
    pub upstreams: Vec<String>,
    pub(crate) upstream_tls: RouteTls,
    pub(crate) refusals: Refusals,
    pub(crate) limits: Vec<Rule>,
    only_plans: Vec<PlanName>,
    /// The written form, with every default filled in.
    pub(super) spec: RouteSpec,
}

/// Checks every route. Names of routes are distinct, and so are the ids of their limits among all rules.
pub(super) fn check_all(
    specs: &[RouteSpec],
    rules: &[Rule],
    known: &Known<'_>,
    opened: &mut RouteFiles,
    faults: &mut Faults,
) -> Vec<RouteConfig> {
    let mut names = HashSet::new();
    let mut ids: HashSet<String> = rules.iter().map(|rule| rule.id.to_string()).collect();
    let mut routes = Vec::with_capacity(specs.len());
    let list = Location::FILE.key("routes");
    for (index, spec) in specs.iter().enumerate() {
        let at = list.item(index);
        let limits = at.key("limits");
        for (index, id) in spec
            .limits
            .iter()
            .flatten()
            .enumerate()
            .filter_map(|(index, limit)| Some((index, limit.id.as_deref()?)))
        {
            if !ids.insert(id.to_owned()) {
                let message = format!("rule `{id}` is defined twice");
                faults.add(
                    &limits.item(index).key("id"),
                    message,
                    "each rule and limit needs a different id",
                );
            }
        }
        let Some(route) = RouteConfig::check(spec.clone(), &at, known, opened, faults) else { continue };
        if !names.insert(route.name.clone()) {
            let key = if spec.name.is_some() { "name" } else { "path" };
            let message = format!("two routes are called `{}`", route.name);
            faults.add(&at.key(key), message, "give one of them another `name`");
        }
        routes.push(route);
    }
    routes
}

impl RouteConfig {
    /// Checks everything before it gives up, so that every mistake is found.
    fn check(
        mut spec: RouteSpec,
        at: &Location<'_>,
        known: &Known<'_>,
        opened: &mut RouteFiles,
        faults: &mut Faults,
    ) -> Option<Self> {
        let path = faults.required(at, "path", spec.path.clone()).filter(|path| check_path(path, at, faults));
        let upstreams = faults.required(at, "upstream", spec.upstream.take());
        let upstreams = upstreams.and_then(|urls| check_upstreams(&urls, &at.key("upstream"), faults));
        for (at, host) in each(&spec.hosts, &at.key("hosts")) {
            if host.parse::<HostPattern>().is_err() {
                let message = format!("`{host}` is not a host");
                faults.add(&at, message, "for instance `api.example.com` or `*.example.com`");
            }
        }
        let name = spec.name.take().filter(|name| check_name(name, at, faults));
        let upstream_tls = opened.check_tls(spec.upstream_tls.as_ref(), &at.key("upstream_tls"), "", faults);
        if let Some(check) = &spec.health_check {
            check.check(&at.key("health_check"), faults);
        }
        if let Some(prefix) = &spec.rewrite_prefix {
            check_prefix(prefix, &at.key("rewrite_prefix"), faults);
        }
        for (key, headers) in
            [("request_headers", &spec.request_headers), ("response_headers", &spec.response_headers)]
        {
            if let Some(headers) = headers {
                headers.check(&at.key(key), faults);
            }
        }
        let refusals = Refusals::check(spec.refusals.clone(), &at.key("refusals"), opened, faults);
        let only_plans = each(&spec.only_plans, &at.key("only_plans"))
            .filter_map(|(at, name)| rule::check_plan(name, &at, known, faults))
            .collect();
        let limits =
            rule::check_limits(spec.limits.as_deref().unwrap_or_default(), &at.key("limits"), known, faults);
        spec.check_costs(at, faults);
        if let Some(cap) = &mut spec.concurrency {
            cap.check(&at.key("concurrency"), faults);
        }
        let (path, upstreams) = (path?, upstreams?);
        let host = spec.hosts.first().map(String::as_str).unwrap_or_default();
        let name = name.unwrap_or_else(|| format!("{host}{path}"));
        (spec.name, spec.upstream) = (Some(name.clone()), Some(TextOrTexts::Many(upstreams.clone())));
        spec.limits = spec.limits.map(|_| limits.iter().map(RuleSpec::from).collect());
        spec.refusals.clone_from(&refusals.spec);
        spec.upstream_tls = spec.upstream_tls.map(|_| UpstreamTlsSpec::from(&upstream_tls.own));
        let hosts = spec.hosts.clone();
        Some(Self { name, path, hosts, upstreams, upstream_tls, refusals, limits, only_plans, spec })
    }

    /// Whether its limits follow its upstreams.
    pub(crate) const fn is_adaptive(&self) -> bool {
        self.spec.adaptive.is_some()
    }

    /// True if it bounds the concurrent requests of its upstreams.
    pub(crate) const fn is_capped(&self) -> bool {
        self.spec.concurrency.is_some()
    }

    /// True if it has settings for TLS upstreams but no TLS upstream.
    pub(super) fn says_needless_tls(&self) -> bool {
        let tls = |upstream: &String| upstream.starts_with("https:");
        self.spec.upstream_tls.is_some() && !self.upstreams.iter().any(tls)
    }

    /// The charge for its requests before their answers report the cost.
    pub(super) const fn estimate(&self) -> Option<&Estimate> {
        self.spec.estimate.as_ref()
    }

    /// True if answers report their cost.
    pub(crate) const fn has_late_cost(&self) -> bool {
        self.spec.cost_from_response.is_some()
    }

    /// The route in the gateway's type.
    pub(crate) fn served(&self) -> anyhow::Result<gateway::Route> {
        let spec = &self.spec;
        let upstreams: Result<Vec<_>, _> = self.upstreams.iter().map(|url| url.parse()).collect();
        let mut served = gateway::Route::new(&self.path, upstreams?)?
            .named(&self.name)
            .balance(spec.balance)
            .strip_prefix(spec.strip_prefix)
            .timeouts(spec.timeouts())
            .retries(spec.retries)
            .max_body(spec.max_body)
            .upgrades(spec.upgrades.iter().map(|protocol| protocol.0.as_str()))
            .request_headers(changes(spec.request_headers.as_ref())?)
            .response_headers(changes(spec.response_headers.as_ref())?)
            .rate_limit_headers(spec.rate_limit_headers)
            .refusals(self.refusals.pages.clone())
            .require_auth(spec.require_api_key)
            .only_plans(self.only_plans.iter().map(PlanName::as_str));
        if let Some(source) = &spec.cost_from_response {
            served = served.cost_from_response(source.clone());
        }
        if let Some(estimate) = &spec.estimate {
            served = served.estimate(estimate.clone());
        }
        if let Some(cost) = spec.unread_cost {
            served = served.unread_cost(cost);
        }
        if let Some(price) = spec.upgrade_cost {
            served = served.upgrade_cost(price);
        }
        served = served.error_cost(spec.error_cost.unwrap_or_default());
        if let Some(tls) = &self.upstream_tls.loaded {
            served = served.upstream_tls(tls);
        }
        for host in &self.hosts {
            served = served.host(host)?;
        }
        if let Some(prefix) = &spec.rewrite_prefix {
            served = served.rewrite_prefix(prefix)?;
        }
        if let Some(check) = &spec.health_check {
            served = served.health_check(check.apply(HealthCheck::new(PathAndQuery::from_static("/"))));
        }
        if let Some(adaptive) = &spec.adaptive {
            served = served.adaptive(adaptive.apply(Adaptive::default()));
        }
        if let Some(cap) = &spec.concurrency {
            served = served.concurrency(cap.apply(RouteConcurrency::default()));
        }
        Ok(served)
    }
}

/// Checks the upstreams, of which there must be at least one.
fn check_upstreams(urls: &TextOrTexts, at: &Location<'_>, faults: &mut Faults) -> Option<Vec<String>> {
    let urls = urls.each(at);
    if urls.is_empty() {
        faults.add(at, "there is no upstream", "one URL or more, as in `http://127.0.0.1:9000`");
        return None;
    }
    for (at, url) in &urls {
        if let Err(why) = url.parse::<Upstream>() {
            faults.add(at, why, "for instance `http://127.0.0.1:9000` or `unix:/run/app.sock`");
        }
    }
    Some(urls.into_iter().map(|(_, url)| url.to_owned()).collect())
}

fn check_name(name: &str, at: &Location<'_>, faults: &mut Faults) -> bool {
    let good = (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    if !good {
        let message = format!("`{name}` is not a name");
        faults.add(&at.key("name"), message, "1 to 64 letters, digits and signs, no spaces");
    }
    good
}

fn check_path(path: &str, at: &Location<'_>, faults: &mut Faults) -> bool {
    let checked = PathPattern::prefix(path);
    checked.map_err(|why| faults.add(&at.key("path"), why, "for instance `/scores`")).is_ok()
}

fn check_prefix(prefix: &str, at: &Location<'_>, faults: &mut Faults) {
    if let Ok(Err(why)) = gateway::Route::new("/", []).map(|route| route.rewrite_prefix(prefix)) {
        faults.add(at, why, "plain segments, as in `/v2/scores`");
    }
}
