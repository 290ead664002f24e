//! What is done with the decisions that are looked at closely: heavy hitters, levels and events.

use serde::{Deserialize, Serialize};
use spile_core::{Key, Micros};
use spile_limiter::Observed;

use crate::budget::Budget;
use crate::event::{Events, What};
use crate::fingerprint::Fingerprints;
use crate::levels::{Level, Levels};
use crate::registrar::Registrar;
use crate::sketch::{Hitter, Sketch};
use crate::verdict::Verdict;

/// Keys that each sketch holds: whoever has more than half a per mille is certain to be in it.
const SKETCHED: usize = 2_048;
/// Keys that are shown of them.
const SHOWN: usize = 10;
/// The longest part of a name that is shown.
const MAX_NAME: usize = 80;
/// A tenant that has less than this share left is near its limit.
const NEAR: f64 = 0.2;
/// How often sketches fade and levels turn, in seconds.
const TURN_S: u64 = 30;

/// One of those who were denied, or spent, most.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopKey {
    /// The key, or a hash of it where names are not allowed.
    pub key: String,
    /// Denials, or tokens. Fades by half each five minutes, so that it is about now.
    pub count: u64,
    /// By how much the count may be too high.
    pub error: u64,
}

/// Everything that sampled decisions are written into.
pub(crate) struct CloseLook {
    prints: Fingerprints,
    names_shown: bool,
    denied: Sketch,
    spent: Sketch,
    levels: Levels,
    keys_denied: Budget,
    tenants_near: Budget,
    tenants_over: Budget,
    ticks: u64,
}

impl CloseLook {
    pub(crate) fn new(registrar: Registrar, prints: Fingerprints, names_shown: bool) -> Self {
        Self {
            prints,
            names_shown,
            denied: Sketch::new(SKETCHED),
            spent: Sketch::new(SKETCHED),
            keys_denied: Budget::new("key_denied", &registrar),
            tenants_near: Budget::new("tenant_near", &registrar),
            tenants_over: Budget::new("tenant_over", &registrar),
            levels: Levels::new(registrar),
            ticks: 0,
        }
    }

    /// Takes a decision that stands for `weight` of them. `now` is the watch's own time: the store's may be put right.
    pub(crate) fn take(
        &mut self,
        seen: &Observed<'_>,
        verdict: Verdict,
        weight: u64,
        now: Micros,
        events: &Events,
    ) {
        let decision = seen.decision();
        if !decision.degraded() {
            decision.limits().iter().for_each(|status| self.levels.look(status));
        }
        if let Some(key) = seen.key() {
            match verdict {
                Verdict::Denied => self.deny(seen, key, weight, now, events),
                _ => self.spend(key, weight * u64::from(decision.binding().cost().get())),
            }
        }
        if let Some(tenant) = seen.tenant() {
            self.watch_tenant(seen, tenant, verdict, now, events);
        }
    }

    /// Tells how many were left out because budgets were spent: once a minute, or at once if it is the `last` time.
    pub(crate) fn tell_suppressed(&mut self, now: Micros, last: bool, events: &Events) {
        for budget in [&mut self.keys_denied, &mut self.tenants_near, &mut self.tenants_over] {
            if let Some(count) = budget.take_suppressed(now, last) {
                events.tell(What::EventsSuppressed { kind: budget.kind().to_owned(), count });
            }
        }
    }

    pub(crate) fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks.is_multiple_of(TURN_S) {
            self.levels.turn();
        }
        if self.ticks.is_multiple_of(10 * TURN_S) {
            self.denied.fade();
            self.spent.fade();
        }
    }

    pub(crate) fn top_denied(&self) -> Vec<TopKey> {
        self.denied.top(SHOWN).into_iter().map(shown).collect()
    }

    pub(crate) fn top_spending(&self) -> Vec<TopKey> {
        self.spent.top(SHOWN).into_iter().map(shown).collect()
    }

    pub(crate) fn levels(&self) -> Vec<Level> {
        self.levels.lately()
    }

    fn deny(&mut self, seen: &Observed<'_>, key: Key<'_>, weight: u64, now: Micros, events: &Events) {
        let print = self.prints.key(key);
        let name = self.name_of(key);
        self.denied.add(print, weight, || name.clone());
        let (decision, limit) = (seen.decision(), seen.decision().binding());
        if self.keys_denied.spend(print ^ limit.tag(), now) {
            let what = What::KeyDenied {
                key: name.map_or_else(|| Fingerprints::mask(print), String::from),
                rule: seen.rule().unwrap_or_default().to_owned(),
                limit: limit.name().to_string(),
                retry_after_ms: u64::try_from(decision.retry_after().as_millis()).unwrap_or(u64::MAX),
            };
            events.tell(what);
        }
    }

    fn spend(&mut self, key: Key<'_>, tokens: u64) {
        let print = self.prints.key(key);
        let name = self.name_of(key);
        self.spent.add(print, tokens, || name);
    }

    /// Tells of a tenant that has used most, or all, of a limit: each once a minute.
    fn watch_tenant(
        &mut self,
        seen: &Observed<'_>,
        tenant: &str,
        verdict: Verdict,
        now: Micros,
        events: &Events,
    ) {
        let (decision, status) = (seen.decision(), seen.decision().binding());
        let (over, near) = (verdict == Verdict::Denied && !decision.degraded(), status.level() <= NEAR);
        if !over && !near {
            return;
        }
        let subject = self.prints.tenant(tenant, 0) ^ status.tag();
        let budget = if over { &mut self.tenants_over } else { &mut self.tenants_near };
        if budget.spend(subject, now) {
            let (tenant, limit) = (tenant.to_owned(), status.name().to_string());
            let used_percent = ((1.0 - status.level()) * 100.0).round() as u32;
            let what = if over {
                What::TenantOver { tenant, limit }
            } else {
                What::TenantNear { tenant, limit, used_percent }
            };
            events.tell(what);
        }
    }

    fn name_of(&self, key: Key<'_>) -> Option<Box<str>> {
        self.names_shown.then(|| key.as_str().chars().take(MAX_NAME).collect())
    }
}

fn shown(hitter: Hitter) -> TopKey {
    let key = hitter.name.map_or_else(|| Fingerprints::mask(hitter.fingerprint), String::from);
    TopKey { key, count: hitter.count, error: hitter.error }
}
