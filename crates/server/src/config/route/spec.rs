//! `[[routes]]` as they are written.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderName;
use http::uri::PathAndQuery;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spile_gateway::{
    Adaptive, Balance, BytesPerToken, CostSource, ErrorCost, Estimate, HealthCheck, RouteConcurrency,
    Timeouts, UnreadCost, UpstreamTlsFiles,
};

use super::refusals::RefusalsSpec;
use crate::config::rule::RuleSpec;
use crate::config::source::{Faults, Location, wrong};
use crate::config::value::{
    RequestSpan, Size, Text, TextOrTexts, Texts, Written, mirrors, share, table, tables, within,
};
use crate::input::tokens::Tokens;

/// A path prefix and the services behind it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RouteSpec {
    /// The name in metrics, traces and the keys of the route's limits.
    pub(super) name: Option<String>,
    /// The path prefix of requests that are forwarded.
    pub(super) path: Option<String>,
    /// Only requests for these hosts; all requests if the list is empty.
    pub(super) hosts: Vec<String>,
    /// The services that requests go to.
    pub(super) upstream: Option<TextOrTexts>,
    #[serde(deserialize_with = "table")]
    pub(super) upstream_tls: Option<UpstreamTlsSpec>,
    /// How requests are spread over the services.
    #[serde(with = "BalanceWord")]
    pub(super) balance: Balance,
    #[serde(deserialize_with = "table")]
    pub(super) health_check: Option<HealthSpec>,
    /// Removes the prefix from forwarded requests.
    pub(super) strip_prefix: bool,
    /// Replaces the prefix in forwarded requests.
    pub(super) rewrite_prefix: Option<String>,
    #[serde(with = "RequestSpan")]
    timeout: Duration,
    #[serde(with = "RequestSpan")]
    connect_timeout: Duration,
    #[serde(with = "RequestSpan")]
    idle_timeout: Duration,
    #[serde(
        deserialize_with = "RequestSpan::deserialize_some",
        serialize_with = "RequestSpan::serialize_some"
    )]
    total_timeout: Option<Duration>,
    /// How often a request is retried if that is safe.
    #[serde(deserialize_with = "within::<0, 5, _, _>")]
    pub(super) retries: u8,
    /// The largest body that is accepted, in bytes.
    #[serde(with = "Size::<0, 1_099_511_627_776>")]
    pub(super) max_body: u64,
    /// The protocols that connections may be upgraded to.
    #[serde(with = "Texts")]
    pub(super) upgrades: Vec<Protocol>,
    #[serde(deserialize_with = "table")]
    pub(super) request_headers: Option<HeadersSpec>,
    #[serde(deserialize_with = "table")]
    pub(super) response_headers: Option<HeadersSpec>,
    /// Reports limits to clients in header fields.
    pub(super) rate_limit_headers: bool,
    #[serde(deserialize_with = "table")]
    pub(super) refusals: Option<RefusalsSpec>,
    /// Refuses callers without a known credential.
    pub(super) require_api_key: bool,
    pub(super) only_plans: Vec<String>,
    #[serde(deserialize_with = "tables")]
    pub(super) limits: Option<Vec<RuleSpec>>,
    /// Where the service reports the cost of a request.
    #[serde(with = "CostPlace")]
    pub(super) cost_from_response: Option<CostSource>,
    /// The charge before the service has reported the cost.
    #[serde(deserialize_with = "read_cost", serialize_with = "write_cost")]
    pub(super) estimate: Option<Estimate>,
    /// The minimum cost of an answer whose cost cannot be read.
    #[serde(deserialize_with = "read_cost", serialize_with = "write_cost")]
    pub(super) unread_cost: Option<UnreadCost>,
    /// The cost of an error of the service.
    #[serde(deserialize_with = "read_cost", serialize_with = "write_cost")]
    pub(super) error_cost: Option<ErrorCost>,
    /// The cost of an upgraded connection, which is refused without it.
    #[serde(deserialize_with = "read_cost", serialize_with = "write_cost")]
    pub(super) upgrade_cost: Option<BytesPerToken>,
    /// How limits shrink while the services fail or are slow.
    #[serde(deserialize_with = "table")]
    pub(super) adaptive: Option<AdaptiveSpec>,
    /// The concurrent and the waiting requests of each service.
    #[serde(deserialize_with = "table")]
    pub(super) concurrency: Option<ConcurrencySpec>,
}

impl Default for RouteSpec {
    fn default() -> Self {
        let timeouts = Timeouts::default();
        Self {
            name: None,
            path: None,
            hosts: Vec::new(),
            upstream: None,
            upstream_tls: None,
            balance: Balance::default(),
            health_check: None,
            strip_prefix: false,
            rewrite_prefix: None,
            timeout: timeouts.first_byte,
            connect_timeout: timeouts.connect,
            idle_timeout: timeouts.idle,
            total_timeout: timeouts.total,
            retries: 1,
            max_body: 64 << 20,
            upgrades: vec![Protocol("websocket".to_owned())],
            request_headers: None,
            response_headers: None,
            rate_limit_headers: true,
            refusals: None,
            require_api_key: false,
            only_plans: Vec::new(),
            limits: None,
            cost_from_response: None,
            estimate: None,
            unread_cost: None,
            error_cost: None,
            upgrade_cost: None,
            adaptive: None,
            concurrency: None,
        }
    }
}

impl RouteSpec {
    pub(super) fn timeouts(&self) -> Timeouts {
        let mut timeouts = Timeouts::default();
        (timeouts.first_byte, timeouts.connect) = (self.timeout, self.connect_timeout);
        (timeouts.idle, timeouts.total) = (self.idle_timeout, self.total_timeout);
        timeouts
    }

    /// Refuses prices of answers on a route whose answers report no cost, and fills in those that are not set.
    pub(super) fn check_costs(&mut self, at: &Location<'_>, faults: &mut Faults) {
        let Some(source) = &self.cost_from_response else {
            let prices = [
                ("unread_cost", self.unread_cost.is_some()),
                ("error_cost", self.error_cost.is_some()),
                ("upgrade_cost", self.upgrade_cost.is_some()),
            ];
            for (key, _) in prices.into_iter().filter(|(_, is_set)| *is_set) {
                let message = format!("`{key}` has no effect without `cost_from_response`");
                faults.add(&at.key(key), message, "set `cost_from_response` too, or remove it");
            }
            return;
        };
        if self.upgrade_cost.is_some() && self.upgrades.is_empty() {
            let message = "`upgrade_cost` has no effect with `upgrades = []`";
            faults.add(&at.key("upgrade_cost"), message, "allow a protocol in `upgrades`, or remove it");
        }
        let usual = if source.reads_body() { UnreadCost::default() } else { UnreadCost::Estimate };
        self.unread_cost.get_or_insert(usual);
        self.error_cost.get_or_insert_default();
    }
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "Balance", rename_all = "snake_case")]
#[non_exhaustive]
enum BalanceWord {
    RoundRobin,
    LeastOutstanding,
}

/// `upstream_tls`: the TLS files for `https://` upstreams.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct UpstreamTlsSpec {
    pub(in crate::config) ca_file: Option<PathBuf>,
    pub(in crate::config) certificate_file: Option<PathBuf>,
    pub(in crate::config) key_file: Option<PathBuf>,
    pub(in crate::config) server_name: Option<String>,
}

impl From<&UpstreamTlsFiles> for UpstreamTlsSpec {
    fn from(files: &UpstreamTlsFiles) -> Self {
        let UpstreamTlsFiles { ca_file, certificate_file, key_file, server_name, .. } = files.clone();
        Self { ca_file, certificate_file, key_file, server_name }
    }
}

/// `request_headers` and `response_headers`: changes to header fields.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct HeadersSpec {
    pub(super) set: BTreeMap<String, String>,
    pub(super) add: BTreeMap<String, String>,
    pub(super) remove: Vec<String>,
}

/// A protocol that connections may be upgraded to: a name, and a version that some have, as in `irc/6.9`.
#[derive(Clone, Debug)]
pub(crate) struct Protocol(pub(super) String);

impl Written for Protocol {
    const RIGHT: &'static str =
        "a protocol that carries no HTTP, of at most 64 letters, digits and signs, as in `websocket`";

    fn read(text: &str) -> Result<Self, String> {
        // Names and versions of protocols are tokens, like the names of header fields.
        let is_token = |text: &str| HeaderName::from_bytes(text.as_bytes()).is_ok();
        let (name, version) = text.split_once('/').unwrap_or((text, "1"));
        if !is_token(name) || !is_token(version) || text.len() > 64 {
            return Err(format!("`{text}` is not a protocol"));
        }
        let http = ["h2", "h2c", "h3", "http", "https", "tls"];
        if http.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return Err(format!("`{text}` would carry requests past all rules and limits"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// `cost_from_response`: a place, `true` for the usual header field, or `false`.
struct CostPlace;

#[derive(Deserialize)]
#[serde(untagged, expecting = "invalid type, expected a place, as in `openai`, true or false")]
enum WrittenCostPlace {
    Usual(bool),
    Place(String),
}

impl CostPlace {
    const RIGHT: &'static str = "`header:NAME`, `json:/POINTER`, `sse:/POINTER`, `openai`, `anthropic`, or true for `X-RateLimit-Cost`";

    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CostSource>, D::Error> {
        match WrittenCostPlace::deserialize(from)? {
            WrittenCostPlace::Usual(usual) => Ok(usual.then(CostSource::default)),
            WrittenCostPlace::Place(text) => text.parse().map(Some).map_err(|why| wrong(why, Self::RIGHT)),
        }
    }

    #[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
    fn serialize<S: Serializer>(place: &Option<CostSource>, to: S) -> Result<S::Ok, S::Error> {
        match place {
            None => to.serialize_bool(false),
            Some(place) => to.collect_str(place),
        }
    }
}

/// A cost that is written as a number of tokens or as text.
trait WrittenCost: FromStr<Err: Display> + Display {
    const RIGHT: &'static str;
}

impl WrittenCost for Estimate {
    const RIGHT: &'static str =
        "1 to 1000000000 tokens, `header:NAME`, or `body/BYTES` for one token per 1 to 1048576 bytes";
}

impl WrittenCost for UnreadCost {
    const RIGHT: &'static str =
        "`bytes/BYTES` for one token per 1 to 1048576 bytes, 1 to 1000000000 tokens, or `estimate`";
}

impl WrittenCost for ErrorCost {
    const RIGHT: &'static str = "`rule`, `none` or `estimate`";
}

impl WrittenCost for BytesPerToken {
    const RIGHT: &'static str = "`bytes/BYTES` for one token per 1 to 1048576 bytes";
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "invalid type, expected tokens, as in 500, or text, as in `body/4`")]
enum TokensOrText {
    Tokens(Tokens),
    Text(String),
}

fn read_cost<'de, T: WrittenCost, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let Some(written) = Option::<TokensOrText>::deserialize(from)? else { return Ok(None) };
    let text = match written {
        TokensOrText::Tokens(tokens) => tokens.to_string(),
        TokensOrText::Text(text) => text,
    };
    text.parse().map(Some).map_err(|why| wrong(why, T::RIGHT))
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn write_cost<T: WrittenCost, S: Serializer>(cost: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    let Some(cost) = cost else { return to.serialize_none() };
    let text = cost.to_string();
    match text.parse() {
        Ok(amount) => Tokens(amount).serialize(to),
        Err(_) => to.serialize_str(&text),
    }
}

/// `health_check`: how the health of upstreams is probed.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HealthSpec {
    #[serde(with = "Text")]
    path: PathAndQuery,
    #[serde(with = "RequestSpan")]
    interval: Duration,
    #[serde(with = "RequestSpan")]
    timeout: Duration,
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    unhealthy_after: u32,
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    healthy_after: u32,
}

impl Written for PathAndQuery {
    const RIGHT: &'static str = "a path that starts with `/`, as in `/health`";

    fn read(text: &str) -> Result<Self, String> {
        let path = text.parse().ok().filter(|path: &Self| path.as_str().starts_with('/'));
        path.ok_or_else(|| format!("`{text}` is not a path"))
    }
}

mirrors! {
    HealthSpec, HealthCheck = HealthCheck::new(NO_PATH);
    path: path, interval: interval, timeout: timeout, unhealthy_after: unhealthy_after,
    healthy_after: healthy_after
}

/// Placeholder for a missing path. No written path equals it.
const NO_PATH: PathAndQuery = PathAndQuery::from_static("*");

impl HealthSpec {
    pub(super) fn check(&self, at: &Location<'_>, faults: &mut Faults) {
        faults.required(at, "path", Some(()).filter(|()| self.path != "*"));
    }
}

/// `adaptive`: how limits follow the upstreams.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AdaptiveSpec {
    #[serde(with = "RequestSpan")]
    target_latency: Duration,
    #[serde(deserialize_with = "share")]
    max_error_rate: f64,
    #[serde(with = "RequestSpan")]
    window: Duration,
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    min_requests: u32,
    #[serde(deserialize_with = "share")]
    decrease: f64,
    #[serde(deserialize_with = "share")]
    increase: f64,
    #[serde(deserialize_with = "share")]
    floor: f64,
}

mirrors! {
    AdaptiveSpec, Adaptive = Adaptive::default();
    target_latency: target_latency, max_error_rate: max_error_rate, window: window,
    min_requests: min_requests, decrease: decrease, increase: increase, floor: floor
}

/// `concurrency`: how many requests an upstream has at once.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConcurrencySpec {
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    per_upstream: usize,
    per_caller: Option<usize>,
    #[serde(deserialize_with = "within::<0, 1_000_000, _, _>")]
    queue: usize,
    #[serde(with = "RequestSpan")]
    wait: Duration,
}

mirrors! {
    ConcurrencySpec, RouteConcurrency = RouteConcurrency::default();
    per_upstream: per_upstream, per_caller: per_caller, queue: queue, wait: wait
}

impl ConcurrencySpec {
    /// Checks `per_caller`, whose bound and default depend on `per_upstream`.
    pub(super) fn check(&mut self, at: &Location<'_>, faults: &mut Faults) {
        let most = self.per_upstream;
        if let Some(places) = self.per_caller.filter(|places| !(1..=most).contains(places)) {
            let message = format!("{places} is out of bounds");
            faults.add(&at.key("per_caller"), message, format_args!("1 to {most}"));
        }
        self.per_caller = Some(self.apply(RouteConcurrency::default()).places_per_caller());
    }
}
