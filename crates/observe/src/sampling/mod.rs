//! Sampled decisions: heavy hitters, bucket levels and events.

mod denials;
mod levels;
mod sketch;

use serde::{Deserialize, Serialize};
use spile_core::{Key, LimitStatus, Micros};
use spile_limiter::Observed;

pub use self::denials::KeyDenial;
use self::denials::{Denied, RecentDenials};
pub use self::levels::BucketLevel;
use self::levels::BucketLevels;
use self::sketch::{HeavyHitter, Sketch};
use crate::events::{EmissionLimit, EventKind, Events};
use crate::metrics::{DecisionOutcome, Fingerprints, Registrar};

/// The keys of each sketch. A key with more than 1/2048 of the total is certain to be in it.
const SKETCH_KEYS: usize = 2_048;
/// How many keys of a sketch are shown.
const TOP: usize = 10;
/// The most characters of a key that are shown.
const MAX_NAME: usize = 80;
/// A tenant that has less than this share left is near its limit.
const NEAR_LIMIT: f64 = 0.2;
/// The window of levels, in seconds. Sketches fade after ten windows.
const LEVEL_WINDOW_S: u64 = 30;

/// One of the keys that were denied most, that spent most, or that hold most permits.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopKey {
    /// The key, or a hash of it unless keys are allowed in plain text.
    pub key: String,
    /// Denials, or tokens: halved every five minutes, so that it reflects recent traffic. Or permits.
    pub count: u64,
    /// By how much the count may be too high.
    pub error: u64,
}

/// The statistics of sampled decisions.
pub(crate) struct SampledDecisions {
    fingerprints: Fingerprints,
    keys_shown: bool,
    denied: Sketch,
    denials: RecentDenials,
    spent: Sketch,
    levels: BucketLevels,
    keys_denied: EmissionLimit,
    tenants_near: EmissionLimit,
    tenants_over: EmissionLimit,
    ticks: u64,
}

impl SampledDecisions {
    pub(crate) fn new(registrar: Registrar, fingerprints: Fingerprints, keys_shown: bool) -> Self {
        Self {
            fingerprints,
            keys_shown,
            denied: Sketch::new(SKETCH_KEYS),
            denials: RecentDenials::default(),
            spent: Sketch::new(SKETCH_KEYS),
            keys_denied: EmissionLimit::new("key_denied", &registrar),
            tenants_near: EmissionLimit::new("tenant_near", &registrar),
            tenants_over: EmissionLimit::new("tenant_over", &registrar),
            levels: BucketLevels::new(registrar),
            ticks: 0,
        }
    }

    /// Records a sampled decision that represents `weight` decisions. `now` is the time of the watch, because the clock
    /// of the store may be set.
    pub(crate) fn record(
        &mut self,
        seen: &Observed<'_>,
        outcome: DecisionOutcome,
        weight: u64,
        now: Micros,
        events: &Events,
    ) {
        let decision = seen.decision();
        if !decision.degraded() {
            decision.limits().iter().for_each(|status| self.levels.record(status));
        }
        if let Some(key) = seen.key() {
            match outcome {
                DecisionOutcome::Denied => self.record_denial(seen, key, weight, now, events),
                // Nothing was spent.
                DecisionOutcome::Shadow => {}
                DecisionOutcome::Allowed => {
                    self.record_spending(key, weight * decision.binding().cost().amount().rounded_up());
                }
            }
        }
        if let Some(tenant) = seen.tenant() {
            self.check_tenant(seen, tenant, outcome, now, events);
        }
    }

    /// Emits how many events were suppressed because a limit was reached: once a minute, or immediately if this is the
    /// `last` call.
    pub(crate) fn emit_suppressed(&mut self, now: Micros, last: bool, events: &Events) {
        for limit in [&mut self.keys_denied, &mut self.tenants_near, &mut self.tenants_over] {
            if let Some(count) = limit.take_suppressed(now, last) {
                events.emit(EventKind::EventsSuppressed { kind: limit.kind().to_owned(), count });
            }
        }
    }

    pub(crate) fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks.is_multiple_of(LEVEL_WINDOW_S) {
            self.levels.rotate();
        }
        if self.ticks.is_multiple_of(10 * LEVEL_WINDOW_S) {
            self.denied.fade();
            self.spent.fade();
        }
    }

    pub(crate) const fn keys_shown(&self) -> bool {
        self.keys_shown
    }

    pub(crate) fn top_denied(&self) -> Vec<TopKey> {
        self.denied.top(TOP).into_iter().map(top_key).collect()
    }

    pub(crate) fn top_spending(&self) -> Vec<TopKey> {
        self.spent.top(TOP).into_iter().map(top_key).collect()
    }

    /// These keys and counts, under the names that keys have in lists.
    pub(crate) fn named(&self, counted: Vec<(String, u64)>) -> Vec<TopKey> {
        let named = |(key, count): (String, u64)| {
            let key = Key::new(&key).ok()?;
            let name = self.name_of(key).map(String::from);
            let key = name.unwrap_or_else(|| Fingerprints::mask(self.fingerprints.key(key)));
            Some(TopKey { key, count, error: 0 })
        };
        counted.into_iter().filter_map(named).collect()
    }

    /// The last denials of a key. `now` and `wall` are the same moment on both clocks.
    pub(crate) fn denials_of(&self, key: Key<'_>, now: Micros, wall: Micros) -> Vec<KeyDenial> {
        self.denials.of(self.fingerprints.key(key), now, wall)
    }

    pub(crate) fn levels(&self) -> Vec<BucketLevel> {
        self.levels.recent()
    }

    fn record_denial(
        &mut self,
        seen: &Observed<'_>,
        key: Key<'_>,
        weight: u64,
        now: Micros,
        events: &Events,
    ) {
        let print = self.fingerprints.key(key);
        let name = self.name_of(key);
        self.denied.add(print, weight, || name.clone());
        let (decision, limit) = (seen.decision(), seen.decision().binding());
        let retry_after_ms = u64::try_from(decision.retry_after().as_millis()).unwrap_or(u64::MAX);
        let rule = seen.rule().unwrap_or_default();
        let reason = decision.reason();
        let denied = Denied { rule, limit: limit.name(), reason, weight, at: now, retry_after_ms };
        self.denials.record(print, &denied);
        if self.keys_denied.spend(print ^ limit.tag(), now) {
            let what = EventKind::KeyDenied {
                key: name.map_or_else(|| Fingerprints::mask(print), String::from),
                rule: rule.to_owned(),
                limit: limit.name().to_string(),
                retry_after_ms,
            };
            events.emit(what);
        }
    }

    fn record_spending(&mut self, key: Key<'_>, tokens: u64) {
        let print = self.fingerprints.key(key);
        let name = self.name_of(key);
        self.spent.add(print, tokens, || name);
    }

    /// Emits an event when a tenant has used most, or all, of the rate that binds or of any quota.
    fn check_tenant(
        &mut self,
        seen: &Observed<'_>,
        tenant: &str,
        outcome: DecisionOutcome,
        now: Micros,
        events: &Events,
    ) {
        let (decision, binding) = (seen.decision(), seen.decision().binding());
        let denied = outcome == DecisionOutcome::Denied && !decision.degraded();
        if binding.limit().windows().is_none() {
            self.check_limit(tenant, binding, denied, now, events);
        }
        // A quota seldom binds before it is used up: a rate beside it has fewer tokens.
        let quotas = decision.limits().iter().filter(|status| status.limit().windows().is_some());
        for status in quotas.filter(|_| !decision.degraded()) {
            let over = status.remaining() == 0 || (denied && !status.retry_after().is_zero());
            self.check_limit(tenant, status, over, now, events);
        }
    }

    /// Emits an event if the tenant has used most of a limit, or is `over` it: of a rate at most once a minute each, of a quota
    /// once in each window.
    fn check_limit(&mut self, tenant: &str, status: &LimitStatus, over: bool, now: Micros, events: &Events) {
        if !over && status.level() > NEAR_LIMIT {
            return;
        }
        let subject = self.fingerprints.tenant(tenant, 0) ^ status.tag();
        let emission = if over { &mut self.tenants_over } else { &mut self.tenants_near };
        let window = status.limit().windows().map(|windows| windows.window_at(status.at()));
        let is_new = match window {
            Some(window) => emission.spend_in(window, subject, now),
            None => emission.spend(subject, now),
        };
        if !is_new {
            return;
        }
        let (tenant, limit) = (tenant.to_owned(), status.name().to_string());
        let window_end_ms = window.map(|window| window.end.get() / 1_000);
        let used_percent = ((1.0 - status.level()) * 100.0).round() as u32;
        events.emit(if over {
            EventKind::TenantOver { tenant, limit, window_end_ms }
        } else {
            EventKind::TenantNear { tenant, limit, used_percent, window_end_ms }
        });
    }

    fn name_of(&self, key: Key<'_>) -> Option<Box<str>> {
        self.keys_shown.then(|| key.as_str().chars().take(MAX_NAME).collect())
    }
}

fn top_key(hitter: HeavyHitter) -> TopKey {
    let key = hitter.name.map_or_else(|| Fingerprints::mask(hitter.fingerprint), String::from);
    TopKey { key, count: hitter.count, error: hitter.error }
}
