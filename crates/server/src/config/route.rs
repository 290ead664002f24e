//! What the gateway forwards, and where to.

use std::time::Duration;

use http::uri::PathAndQuery;
use spile_gateway::{Balance, HostPattern, PathPattern, Upstream};

use super::duration;
use super::file::{Faults, RouteFile, Spot, TextOrTexts};

/// A path prefix and the services behind it.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own in the file")]
pub struct Route {
    /// Requests whose path starts so are forwarded.
    pub path: String,
    /// Only for these hosts; for all where there is none.
    pub hosts: Vec<String>,
    /// The services that they go to.
    pub upstreams: Vec<String>,
    /// How they are spread over the services.
    pub balance: Balance,
    /// Whether the prefix is taken off on the way.
    pub strip_prefix: bool,
    /// What takes the prefix's place on the way.
    pub rewrite_prefix: Option<String>,
    /// How long a service may take to answer.
    pub timeout: Duration,
    /// How long a connection to it may take.
    pub connect_timeout: Duration,
    /// How long either body may stand still.
    pub idle_timeout: Duration,
    /// How often a request is tried again where that is safe.
    pub retries: u8,
    /// Bytes of body that are taken.
    pub max_body: u64,
    /// What services are asked for to find out whether they are well.
    pub health_path: Option<PathAndQuery>,
    /// Whether callers without a known credential are turned away.
    pub require_api_key: bool,
    /// Only for tenants on these plans; for all where there is none.
    pub only_plans: Vec<String>,
    /// Whether the service reports what a request cost.
    pub cost_from_response: bool,
    /// Whether limits shrink while the services fail or are slow.
    pub adaptive: bool,
    /// Requests that each service has under way at once.
    pub max_concurrency: Option<u64>,
}

impl Route {
    pub(super) fn check(file: RouteFile, faults: &mut Faults) -> Option<Self> {
        let path = file.path.and_then(|path| check_path(path, faults));
        let upstreams = file.upstream.and_then(|upstreams| check_upstreams(upstreams, faults));
        let flag = |flag: Option<Spot<bool>>| flag.is_some_and(|flag| flag.value);
        let mut span = |text: Option<Spot<String>>, usual| {
            text.and_then(|text| duration::check(&text, duration::REQUEST, faults))
                .unwrap_or(Duration::from_secs(usual))
        };
        let (timeout, connect_timeout) = (span(file.timeout, 30), span(file.connect_timeout, 5));
        let idle_timeout = span(file.idle_timeout, 60);
        Some(Self {
            hosts: check_hosts(file.hosts, faults),
            balance: file.balance.and_then(|balance| check_balance(&balance, faults)).unwrap_or_default(),
            strip_prefix: flag(file.strip_prefix),
            rewrite_prefix: file.rewrite_prefix.and_then(|prefix| check_path(prefix, faults)),
            timeout,
            connect_timeout,
            idle_timeout,
            retries: check_retries(file.retries, faults),
            max_body: file.max_body.map_or(64 * 1024 * 1024, |bytes| bytes.value),
            health_path: file.health_path.and_then(|path| check_health_path(&path, faults)),
            require_api_key: flag(file.require_api_key),
            only_plans: words(file.only_plans),
            cost_from_response: flag(file.cost_from_response),
            adaptive: flag(file.adaptive),
            max_concurrency: file.max_concurrency.map(|most| most.value.max(1)),
            path: path?,
            upstreams: upstreams?,
        })
    }
}

fn words(texts: Option<Spot<Vec<Spot<String>>>>) -> Vec<String> {
    texts.map(|texts| texts.value.into_iter().map(|text| text.value).collect()).unwrap_or_default()
}

fn check_path(Spot { value, place }: Spot<String>, faults: &mut Faults) -> Option<String> {
    let good = !value.contains(['*', ' ']) && PathPattern::prefix(&value).is_ok();
    if !good {
        faults.add(
            &place,
            format_args!("`{value}` is no path"),
            "a prefix that starts with `/`, as in `/scores`",
        );
    }
    good.then_some(value)
}

fn check_upstreams(Spot { value, place }: Spot<TextOrTexts>, faults: &mut Faults) -> Option<Vec<String>> {
    let upstreams = match value {
        TextOrTexts::Text(one) => vec![Spot::new(one, place)],
        TextOrTexts::Texts(several) if several.is_empty() => {
            faults.add(&place, "there is no upstream", "one URL or more, as in `http://127.0.0.1:9000`");
            return None;
        }
        TextOrTexts::Texts(several) => several,
    };
    upstreams.into_iter().map(|upstream| check_upstream(upstream, faults)).collect()
}

fn check_upstream(Spot { value, place }: Spot<String>, faults: &mut Faults) -> Option<String> {
    let good = value.parse::<Upstream>().is_ok();
    if !good {
        faults.add(&place, format_args!("`{value}` is no upstream"), "a URL, as in `http://127.0.0.1:9000`");
    }
    good.then_some(value)
}

fn check_hosts(hosts: Option<Spot<Vec<Spot<String>>>>, faults: &mut Faults) -> Vec<String> {
    let hosts = hosts.map(|hosts| hosts.value).unwrap_or_default();
    for Spot { value, place } in &hosts {
        if value.parse::<HostPattern>().is_err() {
            faults.add(
                place,
                format_args!("`{value}` is no host"),
                "for instance `api.example.com` or `*.example.com`",
            );
        }
    }
    hosts.into_iter().map(|host| host.value).collect()
}

fn check_balance(Spot { value, place }: &Spot<String>, faults: &mut Faults) -> Option<Balance> {
    match value.as_str() {
        "round_robin" => Some(Balance::RoundRobin),
        "least_outstanding" => Some(Balance::LeastOutstanding),
        _ => {
            faults.add(
                place,
                format_args!("`{value}` is no way to balance"),
                "`round_robin` or `least_outstanding`",
            );
            None
        }
    }
}

fn check_retries(retries: Option<Spot<u64>>, faults: &mut Faults) -> u8 {
    let Some(Spot { value, place }) = retries else { return 1 };
    if value > 5 {
        faults.add(&place, format_args!("{value} retries"), "0 to 5");
    }
    u8::try_from(value).unwrap_or(1)
}

fn check_health_path(Spot { value, place }: &Spot<String>, faults: &mut Faults) -> Option<PathAndQuery> {
    let path = value.parse().ok().filter(|path: &PathAndQuery| path.as_str().starts_with('/'));
    if path.is_none() {
        faults.add(
            place,
            format_args!("`{value}` is no path"),
            "a path that starts with `/`, as in `/health`",
        );
    }
    path
}
