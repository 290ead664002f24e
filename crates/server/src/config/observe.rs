//! Metrics, traces, the dashboard, and receivers of events.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spile_observe::trace::Otlp;
use spile_observe::webhook::Webhook;

use super::collector::{self, NamedTexts};
use super::secret;
use super::source::{Faults, Location, did_you_mean};
use super::value::each;

/// The names of events for webhooks.
#[rustfmt::skip]
const EVENTS: [&str; 9] = [
    "key_denied", "tenant_near", "tenant_over", "store_slow", "store_lost", "store_recovered", "config_reloaded", "config_refused",
    "events_suppressed",
];

/// `[observe]`: metrics, traces, the dashboard, and receivers of events.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ObserveConfig {
    /// Decisions, requests and store calls are counted and timed.
    pub(crate) enabled: bool,
    /// Keys are shown as they are, not hashed.
    pub(crate) show_keys: bool,
    /// The URL of the collector.
    pub(super) otlp: Option<String>,
    /// The percentage of requests that are traced.
    pub(super) otlp_percent: Option<u64>,
    /// Header fields that the collector requires. Their values are secrets.
    #[serde(serialize_with = "NamedTexts::masked", skip_serializing_if = "NamedTexts::is_empty")]
    pub(super) otlp_headers: NamedTexts,
    /// A file with more header fields, one `name: value` per line.
    pub(super) otlp_headers_file: Option<PathBuf>,
    /// Attributes of this process for the collector.
    #[serde(skip_serializing_if = "NamedTexts::is_empty")]
    pub(super) otlp_attributes: NamedTexts,
    /// The collector of spans. `None` if nothing is traced.
    #[serde(skip)]
    pub(crate) collector: Option<Otlp>,
    #[serde(skip)]
    pub(crate) webhooks: Vec<HookConfig>,
}

/// `[[webhooks]]`: a receiver of events.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WebhookSpec {
    url: Option<String>,
    secret_file: Option<PathBuf>,
    events: Vec<String>,
    allow_private: bool,
}

/// A webhook, and its written form for `config show`.
#[derive(Clone, Debug)]
pub(crate) struct HookConfig {
    pub(crate) webhook: Webhook,
    pub(super) spec: WebhookSpec,
}

impl Default for ObserveConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            show_keys: false,
            otlp: None,
            otlp_percent: None,
            otlp_headers: NamedTexts::default(),
            otlp_headers_file: None,
            otlp_attributes: NamedTexts::default(),
            collector: None,
            webhooks: Vec::new(),
        }
    }
}

impl ObserveConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn finish(
        mut self,
        webhooks: Vec<WebhookSpec>,
        variables: &[(String, String)],
        folder: &Path,
        faults: &mut Faults,
    ) -> Self {
        let at = Location::FILE.key("observe");
        let percent = self.otlp_percent.take().unwrap_or(100);
        if percent > 100 {
            faults.add(
                &at.key("otlp_percent"),
                format_args!("{percent} percent of the requests"),
                "0 to 100",
            );
        }
        self.otlp_percent = self.otlp.is_some().then_some(percent);
        self.collector = collector::check(&self, percent as f64 / 100.0, &at, variables, folder, faults);
        let at = Location::FILE.key("webhooks");
        let hook = |(index, hook)| HookConfig::check(hook, &at.item(index), folder, faults);
        self.webhooks = webhooks.into_iter().enumerate().filter_map(hook).collect();
        self
    }
}

impl HookConfig {
    /// Checks everything before it gives up, so that every mistake is found.
    fn check(spec: WebhookSpec, at: &Location<'_>, folder: &Path, faults: &mut Faults) -> Option<Self> {
        for (at, event) in each(&spec.events, &at.key("events")) {
            if !EVENTS.contains(&event) {
                let guess = did_you_mean(event, EVENTS);
                faults.add(
                    &at,
                    format_args!("`{event}` is not an event"),
                    format_args!("{guess}one of {EVENTS:?}"),
                );
            }
        }
        let url = faults.required(at, "url", spec.url.as_deref());
        // The secret does not affect whether the URL is valid.
        if let Some(Err(why)) = url.map(|url| Webhook::new(url, "")) {
            faults.add(&at.key("url"), why, "for instance `https://ops.example.com/spile`");
        }
        let file = faults.required(at, "secret_file", spec.secret_file.as_deref());
        let secret = secret::read("secret", &folder.join(file?), &at.key("secret_file"), faults)?;
        if secret.len() < 16 {
            let fix = "`openssl rand -hex 32` makes one";
            faults.add(&at.key("secret_file"), "the secret has fewer than 16 bytes", fix);
            return None;
        }
        let webhook = Webhook::new(url?, secret.as_str()).ok()?;
        Some(Self { webhook: webhook.allow_private(spec.allow_private).only(spec.events.clone()), spec })
    }
}
