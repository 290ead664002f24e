//! `[[routes]]` as they were typed.

use spile_gateway::RefusalKind;

use super::fault::Faults;
use super::node::Node;
use super::place::{Place, Spot};
use super::section::{Section, TextOrTexts};
use super::tables::{RuleFile, Text, Texts};

/// `[[routes]]`: what the gateway forwards, and how.
#[derive(Debug)]
pub(crate) struct RouteFile {
    pub(crate) place: Place,
    pub(crate) name: Text,
    pub(crate) path: Text,
    pub(crate) hosts: Texts,
    pub(crate) upstream: Option<Spot<TextOrTexts>>,
    pub(crate) upstream_tls: Option<UpstreamTlsFile>,
    pub(crate) balance: Text,
    pub(crate) health_check: Option<HealthFile>,
    pub(crate) strip_prefix: Option<Spot<bool>>,
    pub(crate) rewrite_prefix: Text,
    pub(crate) timeout: Text,
    pub(crate) connect_timeout: Text,
    pub(crate) idle_timeout: Text,
    pub(crate) total_timeout: Text,
    pub(crate) retries: Option<Spot<u64>>,
    pub(crate) max_body: Text,
    pub(crate) upgrades: Texts,
    pub(crate) request_headers: Option<HeadersFile>,
    pub(crate) response_headers: Option<HeadersFile>,
    pub(crate) rate_limit_headers: Option<Spot<bool>>,
    pub(crate) refusals: Option<RefusalsFile>,
    pub(crate) require_api_key: Option<Spot<bool>>,
    pub(crate) only_plans: Texts,
    pub(crate) limits: Vec<RuleFile>,
    pub(crate) cost_from_response: Option<Spot<bool>>,
    pub(crate) adaptive: Option<AdaptiveFile>,
    pub(crate) concurrency: Option<ConcurrencyFile>,
}

/// `upstream_tls`: how `https://` upstreams are met.
#[derive(Debug, Default)]
pub(crate) struct UpstreamTlsFile {
    pub(crate) ca_file: Text,
    pub(crate) certificate_file: Text,
    pub(crate) key_file: Text,
    pub(crate) server_name: Text,
}

/// `health_check`: how upstreams are asked whether they are well.
#[derive(Debug)]
pub(crate) struct HealthFile {
    pub(crate) path: Text,
    pub(crate) interval: Text,
    pub(crate) timeout: Text,
    pub(crate) unhealthy_after: Option<Spot<u64>>,
    pub(crate) healthy_after: Option<Spot<u64>>,
}

/// `request_headers` and `response_headers`: what is changed on the way.
#[derive(Debug)]
pub(crate) struct HeadersFile {
    pub(crate) set: Vec<(Spot<String>, Spot<String>)>,
    pub(crate) add: Vec<(Spot<String>, Spot<String>)>,
    pub(crate) remove: Texts,
}

/// `refusals`: what refusals look like, by kind.
#[derive(Debug)]
pub(crate) struct RefusalsFile(pub(crate) Vec<(RefusalKind, RefusalFile)>);

/// What one kind of refusal looks like.
#[derive(Debug)]
pub(crate) struct RefusalFile {
    pub(crate) place: Place,
    pub(crate) status: Option<Spot<u64>>,
    pub(crate) body: Text,
    pub(crate) body_file: Text,
    pub(crate) content_type: Text,
}

/// `adaptive`: how limits follow the upstreams.
#[derive(Debug)]
pub(crate) struct AdaptiveFile {
    pub(crate) target_latency: Text,
    pub(crate) max_error_rate: Option<Spot<f64>>,
    pub(crate) window: Text,
    pub(crate) min_requests: Option<Spot<u64>>,
    pub(crate) decrease: Option<Spot<f64>>,
    pub(crate) increase: Option<Spot<f64>>,
    pub(crate) floor: Option<Spot<f64>>,
}

/// `concurrency`: how many requests an upstream has at once.
#[derive(Debug)]
pub(crate) struct ConcurrencyFile {
    pub(crate) per_upstream: Option<Spot<u64>>,
    pub(crate) per_caller: Option<Spot<u64>>,
    pub(crate) queue: Option<Spot<u64>>,
    pub(crate) wait: Text,
}

impl RouteFile {
    pub(super) fn read_all(routes: Vec<Spot<Node>>, faults: &mut Faults) -> Vec<Self> {
        routes.into_iter().map(|node| Self::read(Section::new("routes", node, faults))).collect()
    }

    fn read(mut section: Section<'_>) -> Self {
        let (path, upstream) = (section.text("path"), section.text_or_texts("upstream"));
        let limits = section.tables("limits").unwrap_or_default();
        let read = Self {
            place: section.place().clone(),
            path: section.required("path", path),
            upstream: section.required("upstream", upstream),
            name: section.text("name"),
            hosts: section.texts("hosts"),
            upstream_tls: section.table("upstream_tls").map(UpstreamTlsFile::read),
            balance: section.text("balance"),
            health_check: section.table("health_check").map(HealthFile::read),
            strip_prefix: section.flag("strip_prefix"),
            rewrite_prefix: section.text("rewrite_prefix"),
            timeout: section.text("timeout"),
            connect_timeout: section.text("connect_timeout"),
            idle_timeout: section.text("idle_timeout"),
            total_timeout: section.text("total_timeout"),
            retries: section.whole("retries"),
            max_body: section.size("max_body"),
            upgrades: section.texts("upgrades"),
            request_headers: section.table("request_headers").map(HeadersFile::read),
            response_headers: section.table("response_headers").map(HeadersFile::read),
            rate_limit_headers: section.flag("rate_limit_headers"),
            refusals: section.table("refusals").map(RefusalsFile::read),
            require_api_key: section.flag("require_api_key"),
            only_plans: section.texts("only_plans"),
            limits: RuleFile::read_all("routes.limits", limits, section.faults()),
            cost_from_response: section.flag("cost_from_response"),
            adaptive: section.table_or_flag("adaptive").map(AdaptiveFile::read),
            concurrency: section.table("concurrency").map(ConcurrencyFile::read),
        };
        section.end();
        read
    }
}

impl UpstreamTlsFile {
    fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            ca_file: section.text("ca_file"),
            certificate_file: section.text("certificate_file"),
            key_file: section.text("key_file"),
            server_name: section.text("server_name"),
        };
        section.end();
        read
    }
}

impl HealthFile {
    fn read(mut section: Section<'_>) -> Self {
        let path = section.text("path");
        let read = Self {
            path: section.required("path", path),
            interval: section.text("interval"),
            timeout: section.text("timeout"),
            unhealthy_after: section.whole("unhealthy_after"),
            healthy_after: section.whole("healthy_after"),
        };
        section.end();
        read
    }
}

impl HeadersFile {
    fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            set: section.named_texts("set"),
            add: section.named_texts("add"),
            remove: section.texts("remove"),
        };
        section.end();
        read
    }
}

impl RefusalsFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let page = |kind: RefusalKind| Some((kind, RefusalFile::read(section.table(kind.name())?)));
        let pages = RefusalKind::ALL.into_iter().filter_map(page).collect();
        section.end();
        Self(pages)
    }
}

impl RefusalFile {
    fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            place: section.place().clone(),
            status: section.whole("status"),
            body: section.text("body"),
            body_file: section.text("body_file"),
            content_type: section.text("content_type"),
        };
        section.end();
        read
    }
}

impl AdaptiveFile {
    fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            target_latency: section.text("target_latency"),
            max_error_rate: section.number("max_error_rate"),
            window: section.text("window"),
            min_requests: section.whole("min_requests"),
            decrease: section.number("decrease"),
            increase: section.number("increase"),
            floor: section.number("floor"),
        };
        section.end();
        read
    }
}

impl ConcurrencyFile {
    fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            per_upstream: section.whole("per_upstream"),
            per_caller: section.whole("per_caller"),
            queue: section.whole("queue"),
            wait: section.text("wait"),
        };
        section.end();
        read
    }
}
