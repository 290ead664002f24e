//! What whoever watches may see, and who is told of events.

use std::path::Path;

use spile_observe::trace::Otlp;
use spile_observe::webhook::Webhook;

use super::file::{Faults, ObserveFile, Spot, WebhookFile};

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

/// What whoever watches may see, and who is told of events.
#[derive(Clone, Debug)]
pub(crate) struct ObserveConfig {
    /// Decisions, requests and store calls are counted and timed.
    pub(crate) enabled: bool,
    /// Keys are shown as they are, not hashed.
    pub(crate) show_keys: bool,
    /// Where spans go; nothing is traced where there is none.
    pub(crate) otlp: Option<OtlpConfig>,
    pub(crate) webhooks: Vec<HookConfig>,
}

/// A collector, and how it was written for `config show`.
#[derive(Clone, Debug)]
pub(crate) struct OtlpConfig {
    pub(crate) otlp: Otlp,
    pub(crate) endpoint: String,
    pub(crate) percent: u64,
}

/// A webhook, and how it was written for `config show`.
#[derive(Clone, Debug)]
pub(crate) struct HookConfig {
    pub(crate) webhook: Webhook,
    pub(crate) url: String,
    pub(crate) secret_file: String,
    pub(crate) events: Vec<String>,
    pub(crate) allow_private: bool,
}

impl ObserveConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn check(
        file: ObserveFile,
        webhooks: Vec<WebhookFile>,
        folder: &Path,
        faults: &mut Faults,
    ) -> Self {
        let show_keys = file.show_keys.is_some_and(|shown| shown.value);
        let otlp = file.otlp.and_then(|endpoint| OtlpConfig::check(endpoint, file.otlp_percent, faults));
        let webhooks = webhooks.into_iter().filter_map(|hook| HookConfig::check(hook, folder, faults));
        let enabled = file.enabled.is_none_or(|enabled| enabled.value);
        Self { enabled, show_keys, otlp, webhooks: webhooks.collect() }
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
    fn check(endpoint: Spot<String>, percent: Option<Spot<u64>>, faults: &mut Faults) -> Option<Self> {
        let above = percent.as_ref().filter(|percent| percent.value > 100);
        if let Some(Spot { value, place }) = above {
            faults.add(place, format_args!("{value} percent of the requests"), "0 to 100");
        }
        let (percent, Spot { value: endpoint, place }) =
            (percent.map_or(100, |percent| percent.value), endpoint);
        match Otlp::new(&endpoint) {
            Ok(otlp) => Some(Self { otlp: otlp.ratio(percent as f64 / 100.0), endpoint, percent }),
            Err(why) => {
                faults.add(&place, why, "for instance `http://127.0.0.1:4318`");
                None
            }
        }
    }
}

impl HookConfig {
    /// Everything is looked at before anything is given up, so that every mistake is found.
    fn check(file: WebhookFile, folder: &Path, faults: &mut Faults) -> Option<Self> {
        let allow_private = file.allow_private.is_some_and(|allowed| allowed.value);
        let events = check_events(file.events.map(|events| events.value).unwrap_or_default(), faults);
        let secret =
            file.secret_file.and_then(|file| Some((read_secret(&file, folder, faults)?, file.value)));
        let url = file.url.filter(|url| check_url(url, faults))?.value;
        let (secret, secret_file) = secret?;
        let webhook = Webhook::new(&url, secret.as_str()).ok()?;
        let webhook = webhook.allow_private(allow_private).only(events.clone());
        Some(Self { webhook, url, secret_file, events, allow_private })
    }
}

fn check_url(Spot { value, place }: &Spot<String>, faults: &mut Faults) -> bool {
    // Whether it is a place to send to does not depend on the secret.
    let checked = Webhook::new(value, "");
    if let Err(why) = &checked {
        faults.add(place, why, "for instance `https://ops.example.com/spile`");
    }
    checked.is_ok()
}

fn check_events(words: Vec<Spot<String>>, faults: &mut Faults) -> Vec<String> {
    for Spot { value, place } in &words {
        if !EVENTS.contains(&value.as_str()) {
            faults.add(place, format_args!("`{value}` is no event"), format_args!("one of {EVENTS:?}"));
        }
    }
    words.into_iter().map(|word| word.value).collect()
}

fn read_secret(Spot { value, place }: &Spot<String>, folder: &Path, faults: &mut Faults) -> Option<String> {
    match std::fs::read_to_string(folder.join(value)) {
        Ok(secret) if secret.trim().len() >= 16 => Some(secret.trim().to_owned()),
        Ok(_) => {
            faults.add(place, "the secret has fewer than 16 bytes", "`openssl rand -hex 32` makes one");
            None
        }
        Err(why) => {
            faults.add(
                place,
                format_args!("the secret cannot be read: {why}"),
                "a file that holds the secret",
            );
            None
        }
    }
}
