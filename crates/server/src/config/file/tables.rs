//! The tables of the file, each as it was typed.

use super::fault::Faults;
use super::listen::TlsFile;
use super::node::{Node, Table};
use super::place::{Place, Spot};
use super::section::{Section, TextOrTexts};

pub(super) type Text = Option<Spot<String>>;
pub(super) type Texts = Option<Spot<Vec<Spot<String>>>>;

/// `[store]`: where buckets live.
#[derive(Debug, Default)]
pub(crate) struct StoreFile {
    pub(crate) url: Text,
    pub(crate) prefix: Text,
    pub(crate) timeout: Text,
    pub(crate) on_failure: Text,
    pub(crate) fail_closed_retry_after: Text,
    pub(crate) replicas: Option<Spot<u64>>,
    pub(crate) connections: Option<Spot<u64>>,
    pub(crate) flights: Option<Spot<u64>>,
    pub(crate) queue: Option<Spot<u64>>,
    pub(crate) time: Text,
    pub(crate) max_keys: Option<Spot<u64>>,
    pub(crate) path: Text,
    pub(crate) save_every: Text,
}

impl StoreFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            url: section.text("url"),
            prefix: section.text("prefix"),
            timeout: section.text("timeout"),
            on_failure: section.text("on_failure"),
            fail_closed_retry_after: section.text("fail_closed_retry_after"),
            replicas: section.whole("replicas"),
            connections: section.whole("connections"),
            flights: section.whole("flights"),
            queue: section.whole("queue"),
            time: section.text("time"),
            max_keys: section.whole("max_keys"),
            path: section.text("path"),
            save_every: section.text("save_every"),
        };
        section.end();
        read
    }
}

/// `[admin]`: who may change things.
#[derive(Debug, Default)]
pub(crate) struct AdminFile {
    pub(crate) token_file: Text,
    pub(crate) registry_file: Text,
    pub(crate) tls: Option<TlsFile>,
}

impl AdminFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            token_file: section.text("token_file"),
            registry_file: section.text("registry_file"),
            tls: section.table("tls").map(TlsFile::read),
        };
        section.end();
        read
    }
}

/// `[grpc]`: how long Envoy is kept waiting.
#[derive(Debug, Default)]
pub(crate) struct GrpcFile {
    pub(crate) timeout: Text,
    pub(crate) tls: Option<TlsFile>,
}

impl GrpcFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let read = Self { timeout: section.text("timeout"), tls: section.table("tls").map(TlsFile::read) };
        section.end();
        read
    }
}

/// `[resp]`: what clients of the Redis protocol have to know.
#[derive(Debug, Default)]
pub(crate) struct RespFile {
    pub(crate) password_file: Text,
    pub(crate) idle_timeout: Text,
    pub(crate) tls: Option<TlsFile>,
}

impl RespFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            password_file: section.text("password_file"),
            idle_timeout: section.text("idle_timeout"),
            tls: section.table("tls").map(TlsFile::read),
        };
        section.end();
        read
    }
}

/// `[observe]`: what whoever watches may see.
#[derive(Debug, Default)]
pub(crate) struct ObserveFile {
    pub(crate) enabled: Option<Spot<bool>>,
    pub(crate) show_keys: Option<Spot<bool>>,
    pub(crate) otlp: Text,
    pub(crate) otlp_percent: Option<Spot<u64>>,
}

impl ObserveFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            enabled: section.flag("enabled"),
            show_keys: section.flag("show_keys"),
            otlp: section.text("otlp"),
            otlp_percent: section.whole("otlp_percent"),
        };
        section.end();
        read
    }
}

/// `[[webhooks]]`: who is told of events.
#[derive(Debug)]
pub(crate) struct WebhookFile {
    pub(crate) url: Text,
    pub(crate) secret_file: Text,
    pub(crate) events: Texts,
    pub(crate) allow_private: Option<Spot<bool>>,
}

impl WebhookFile {
    pub(super) fn read_all(nodes: Vec<Spot<Node>>, faults: &mut Faults) -> Vec<Self> {
        let read = |node| {
            let mut section = Section::new("webhooks", node, faults);
            let url = section.text("url");
            let secret_file = section.text("secret_file");
            let read = Self {
                url: section.required("url", url),
                secret_file: section.required("secret_file", secret_file),
                events: section.texts("events"),
                allow_private: section.flag("allow_private"),
            };
            section.end();
            read
        };
        nodes.into_iter().map(read).collect()
    }
}

/// `[clients]`: how a caller's address and name are found.
#[derive(Debug, Default)]
pub(crate) struct ClientsFile {
    pub(crate) trusted_proxies: Texts,
    pub(crate) ipv6_prefix: Option<Spot<u64>>,
    pub(crate) principal_header: Text,
}

impl ClientsFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            trusted_proxies: section.texts("trusted_proxies"),
            ipv6_prefix: section.whole("ipv6_prefix"),
            principal_header: section.text("principal_header"),
        };
        section.end();
        read
    }
}

/// `[forward_auth]`: how proxies describe the request that they ask about.
#[derive(Debug, Default)]
pub(crate) struct ForwardAuthFile {
    pub(crate) proxy: Text,
}

impl ForwardAuthFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let read = Self { proxy: section.text("proxy") };
        section.end();
        read
    }
}

/// `[plans.NAME]`: one limit, or a chain of them.
#[derive(Debug)]
pub(crate) struct PlanFile {
    pub(crate) name: Spot<String>,
    /// The plan's own limit, without a name.
    pub(crate) limit: LimitFile,
    pub(crate) limits: Option<Vec<LimitFile>>,
}

/// A limit as it was typed.
#[derive(Debug)]
pub(crate) struct LimitFile {
    pub(crate) place: Place,
    pub(crate) name: Text,
    pub(crate) capacity: Option<Spot<u64>>,
    pub(crate) refill: Text,
}

impl PlanFile {
    pub(super) fn read_all(plans: Table, faults: &mut Faults) -> Vec<Self> {
        let read = |(name, node): (Spot<String>, Spot<Node>)| {
            let mut section = Section::new(format!("plans.{}", name.value), node, faults);
            let limit = LimitFile { name: None, ..LimitFile::read(&mut section) };
            let limits = section.tables("limits").map(|limits| {
                let read = |node| {
                    let mut section =
                        Section::new(format!("plans.{}.limits", name.value), node, section.faults());
                    let own = section.text("name");
                    let own = section.required("name", own);
                    let limit = LimitFile { name: own, ..LimitFile::read(&mut section) };
                    section.end();
                    limit
                };
                limits.into_iter().map(read).collect()
            });
            section.end();
            Self { name, limit, limits }
        };
        plans.into_iter().map(read).collect()
    }
}

impl LimitFile {
    fn read(section: &mut Section<'_>) -> Self {
        let place = section.place().clone();
        Self { place, name: None, capacity: section.whole("capacity"), refill: section.text("refill") }
    }
}

/// `[[rules]]`: which requests, who pays, how much.
#[derive(Debug)]
pub(crate) struct RuleFile {
    pub(crate) place: Place,
    pub(crate) id: Text,
    pub(crate) matches: Option<MatchFile>,
    pub(crate) key: Texts,
    pub(crate) plans: Option<Spot<TextOrTexts>>,
    pub(crate) anonymous_plan: Text,
    pub(crate) cost: Option<Spot<u64>>,
    pub(crate) mode: Text,
    pub(crate) on_failure: Text,
    pub(crate) also: Texts,
}

/// Which requests a rule is for.
#[derive(Debug)]
pub(crate) struct MatchFile {
    pub(crate) path: Text,
    pub(crate) hosts: Texts,
    pub(crate) methods: Texts,
    pub(crate) domain: Text,
    pub(crate) entries: Texts,
    pub(crate) subset: Option<Spot<bool>>,
    pub(crate) place: Place,
}

impl RuleFile {
    pub(super) fn read_all(name: &str, rules: Vec<Spot<Node>>, faults: &mut Faults) -> Vec<Self> {
        rules.into_iter().map(|node| Self::read(Section::new(name, node, faults))).collect()
    }

    fn read(mut section: Section<'_>) -> Self {
        let id = section.text("id");
        let read = Self {
            place: section.place().clone(),
            id: section.required("id", id),
            matches: section.table("match").map(MatchFile::read),
            key: section.texts("key"),
            plans: section.text_or_texts("plans"),
            anonymous_plan: section.text("anonymous_plan"),
            cost: section.whole("cost"),
            mode: section.text("mode"),
            on_failure: section.text("on_failure"),
            also: section.texts("also"),
        };
        section.end();
        read
    }
}

impl MatchFile {
    fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            place: section.place().clone(),
            path: section.text("path"),
            hosts: section.texts("hosts"),
            methods: section.texts("methods"),
            domain: section.text("domain"),
            entries: section.texts("entries"),
            subset: section.flag("subset"),
        };
        section.end();
        read
    }
}

/// `[[tenants]]`: customers.
#[derive(Debug)]
pub(crate) struct TenantFile {
    pub(crate) id: Text,
    pub(crate) plan: Text,
    pub(crate) api_keys: Texts,
    /// Its own limits, by the names that they have in its plan.
    pub(crate) limits: Vec<LimitFile>,
}

impl TenantFile {
    pub(super) fn read_all(tenants: Vec<Spot<Node>>, faults: &mut Faults) -> Vec<Self> {
        tenants.into_iter().map(|node| Self::read(Section::new("tenants", node, faults))).collect()
    }

    fn read(mut section: Section<'_>) -> Self {
        let (id, plan) = (section.text("id"), section.text("plan"));
        let limits = section.named("limits").unwrap_or_default();
        let limits = limits.into_iter().map(|(name, node)| {
            let mut section = Section::new(format!("tenants.limits.{}", name.value), node, section.faults());
            let limit = LimitFile { name: Some(name), ..LimitFile::read(&mut section) };
            section.end();
            limit
        });
        let limits = limits.collect();
        let read = Self {
            limits,
            id: section.required("id", id),
            plan: section.required("plan", plan),
            api_keys: section.texts("api_keys"),
        };
        section.end();
        read
    }
}
