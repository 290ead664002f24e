//! What is counted, traced and shown, and who is told of events.

use std::path::Path;

use serde::{Deserialize, Serialize};
use spile_observe::trace::Otlp;
use spile_observe::webhook::Webhook;

use super::source::{At, Faults, did_you_mean};
use super::value::each;

/// What may happen, as webhooks name it.
const EVENTS: [&str; 8] = [
    "key_denied",
    "tenant_near",
    "tenant_over",
    "store_lost",
    "store_recovered",
    "config_reloaded",
    "config_refused",
    "events_suppressed",
];

/// `[observe]`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ObserveSpec {
    enabled: bool,
    show_keys: bool,
    otlp: Option<String>,
    otlp_percent: Option<u64>,
}

/// `[[webhooks]]`: a place that is told of events.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct WebhookSpec {
    url: Option<String>,
    secret_file: Option<String>,
    events: Vec<String>,
    allow_private: bool,
}

/// What is counted, traced and shown, and who is told of events.
#[derive(Clone, Debug)]
pub(crate) struct ObserveConfig {
    /// Decisions, requests and store calls are counted and timed.
    pub(crate) enabled: bool,
    /// Keys are shown as they are, not hashed.
    pub(crate) show_keys: bool,
    /// Where spans go. `None` if nothing is traced.
    pub(crate) otlp: Option<OtlpConfig>,
    pub(crate) webhooks: Vec<HookConfig>,
}

/// A collector, and how it was written for `config show`.
#[derive(Clone, Debug)]
pub(crate) struct OtlpConfig {
    pub(crate) otlp: Otlp,
    endpoint: String,
    percent: u64,
}

/// A webhook, and how it was written for `config show`.
#[derive(Clone, Debug)]
pub(crate) struct HookConfig {
    pub(crate) webhook: Webhook,
    pub(super) spec: WebhookSpec,
}

impl Default for ObserveSpec {
    fn default() -> Self {
        Self { enabled: true, show_keys: false, otlp: None, otlp_percent: None }
    }
}

impl From<&ObserveConfig> for ObserveSpec {
    fn from(config: &ObserveConfig) -> Self {
        let (otlp, otlp_percent) =
            config.otlp.as_ref().map(|otlp| (otlp.endpoint.clone(), otlp.percent)).unzip();
        Self { enabled: config.enabled, show_keys: config.show_keys, otlp, otlp_percent }
    }
}

impl ObserveConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn check(
        spec: ObserveSpec,
        webhooks: Vec<WebhookSpec>,
        folder: &Path,
        faults: &mut Faults,
    ) -> Self {
        let ObserveSpec { enabled, show_keys, otlp, otlp_percent } = spec;
        let otlp = otlp.and_then(|endpoint| OtlpConfig::check(endpoint, otlp_percent, faults));
        let at = At::FILE.key("webhooks");
        let hook = |(index, hook)| HookConfig::check(hook, &at.item(index), folder, faults);
        Self {
            enabled,
            show_keys,
            otlp,
            webhooks: webhooks.into_iter().enumerate().filter_map(hook).collect(),
        }
    }
}

impl Default for ObserveConfig {
    fn default() -> Self {
        Self { enabled: true, show_keys: false, otlp: None, webhooks: Vec::new() }
    }
}

impl PartialEq for OtlpConfig {
    fn eq(&self, other: &Self) -> bool {
        (&self.endpoint, self.percent) == (&other.endpoint, other.percent)
    }
}

impl OtlpConfig {
    fn check(endpoint: String, percent: Option<u64>, faults: &mut Faults) -> Option<Self> {
        let (at, percent) = (At::FILE.key("observe"), percent.unwrap_or(100));
        if percent > 100 {
            faults.add(
                &at.key("otlp_percent"),
                format_args!("{percent} percent of the requests"),
                "0 to 100",
            );
        }
        match Otlp::new(&endpoint) {
            Ok(otlp) => Some(Self { otlp: otlp.ratio(percent as f64 / 100.0), endpoint, percent }),
            Err(why) => {
                faults.add(&at.key("otlp"), why, "for instance `http://127.0.0.1:4318`");
                None
            }
        }
    }
}

impl HookConfig {
    /// Checks everything before it gives up, so that every mistake is found.
    fn check(spec: WebhookSpec, at: &At<'_>, folder: &Path, faults: &mut Faults) -> Option<Self> {
        for (at, event) in each(&spec.events, &at.key("events")) {
            if !EVENTS.contains(&event) {
                let guess = did_you_mean(event, EVENTS);
                faults.add(
                    &at,
                    format_args!("`{event}` is no event"),
                    format_args!("{guess}one of {EVENTS:?}"),
                );
            }
        }
        let url = faults.required(at, "url", spec.url.as_deref());
        // Whether a URL can be sent to does not depend on the secret.
        if let Some(Err(why)) = url.map(|url| Webhook::new(url, "")) {
            faults.add(&at.key("url"), why, "for instance `https://ops.example.com/spile`");
        }
        let file = faults.required(at, "secret_file", spec.secret_file.as_deref());
        let secret = read_secret(&folder.join(file?), &at.key("secret_file"), faults)?;
        let webhook = Webhook::new(url?, secret.as_str()).ok()?;
        Some(Self { webhook: webhook.allow_private(spec.allow_private).only(spec.events.clone()), spec })
    }
}

fn read_secret(path: &Path, at: &At<'_>, faults: &mut Faults) -> Option<String> {
    match std::fs::read_to_string(path) {
        Ok(secret) if secret.trim().len() >= 16 => Some(secret.trim().to_owned()),
        Ok(_) => {
            faults.add(at, "the secret has fewer than 16 bytes", "`openssl rand -hex 32` makes one");
            None
        }
        Err(why) => {
            let message = format!("the secret cannot be read: {why}");
            faults.add(at, message, "a file that holds the secret");
            None
        }
    }
}
