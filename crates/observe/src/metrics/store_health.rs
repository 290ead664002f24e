//! The state of the store: well, slow or lost.
//!
//! One state machine, moved once a second, feeds the log, the events, the gauge, the dashboard and `/readyz`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Gauge, gauge};
use serde::{Deserialize, Serialize};
use spile_core::Micros;

use super::failures::StorelessCounts;
use super::names::{BREAKER, QUEUE, STORE_STATE};
use super::registrar::Registrar;
use crate::events::{EventKind, Events};

/// The state of the store.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoreHealth {
    /// Where buckets live, without passwords: `memory:`, `redis://127.0.0.1:6379`.
    pub store: String,
    /// The failure policy for decisions that it does not answer: `allow`, `deny` or `local`. Rules may have another.
    #[serde(default)]
    pub on_failure: String,
    /// How many nodes it has. Zero for the embedded store.
    pub nodes: u64,
    /// Nodes whose breaker is open.
    pub breakers_open: u64,
    /// Callers that wait for an answer.
    pub waiting: u64,
    /// Requests that each node of a cluster did not answer in time, since it was first used.
    #[serde(skip)]
    pub late_by_node: Vec<(String, u64)>,
    /// How long a decision waits for the store, in milliseconds. Zero if that is not known.
    #[serde(default)]
    pub timeout_ms: u64,
    /// Why the store is lost: a breaker is open, or the store refuses to write. `None` while it answers, late or not.
    pub trouble: Option<String>,
    /// A problem that does not keep the store from answering, but that an operator should look into.
    #[serde(default)]
    pub warning: Option<String>,
}

/// Asks the store for its state. Called once a second, off the decision path.
pub type HealthProbe = Arc<dyn Fn() -> StoreHealth + Send + Sync>;

/// Whether decisions are made by the store.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum StoreState {
    /// Every decision of the last ten seconds was the store's.
    #[default]
    Well,
    /// Some decisions of the last ten seconds got no answer in time.
    Slow,
    /// The store is not asked, because it stopped answering, or it refuses to write.
    Lost,
}

impl StoreState {
    /// All states, in the order of severity.
    pub const ALL: [Self; 3] = [Self::Well, Self::Slow, Self::Lost];

    /// The value of the metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Slow => "slow",
            Self::Lost => "lost",
        }
    }
}

/// How many decisions were made since the start, and how many of them the store did not answer in time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerCounts {
    pub(crate) decided: u64,
    pub(crate) late: u64,
}

/// Sets the gauges, and emits an event when the store is slow, when it is lost and when it is back.
pub(crate) struct StoreHealthTracker {
    breaker: Gauge,
    queue: Gauge,
    states: [Gauge; StoreState::ALL.len()],
    now: StoreHealth,
    state: StoreState,
    /// The answers of each of the last seconds.
    recent: VecDeque<AnswerCounts>,
    /// The late requests of each node, as of each of the last ticks.
    recent_nodes: VecDeque<Vec<(String, u64)>>,
    /// When the log last reported a slow store.
    slow_reported_at: Option<Micros>,
    lost_at: Option<Micros>,
    /// All decisions, as of the last tick.
    answers: AnswerCounts,
    /// Decisions without the store, as of the last tick.
    degraded: StorelessCounts,
    /// The counts of the last tick before the store was lost.
    degraded_before: StorelessCounts,
    well_for: u32,
}

/// The consequence of losing the store for callers. Rules may have their own policy.
fn effect(policy: &str) -> &'static str {
    match policy {
        "allow" => "limits are NOT enforced (policy allow)",
        "deny" => "requests are denied (policy deny)",
        "local" => "limits are enforced by each instance alone (policy local)",
        _ => "decisions follow the failure policy",
    }
}

/// Seconds without trouble after which a lost store counts as recovered.
const CONVINCED: u32 = 2;

/// Seconds for which a decision without an answer in time keeps the state at slow.
const WINDOW: usize = 10;

/// How often the log and events report a slow store.
const SLOW_REPORTED_EVERY_US: u64 = 60_000_000;

impl StoreHealthTracker {
    pub(crate) fn new(registrar: &Registrar) -> Self {
        let state = |state: StoreState| gauge!(STORE_STATE, "state" => state.as_str());
        let gauges = || (gauge!(BREAKER), gauge!(QUEUE), StoreState::ALL.map(state));
        let (breaker, queue, states) = registrar.register(gauges);
        let tracker = Self {
            breaker,
            queue,
            states,
            now: StoreHealth::default(),
            state: StoreState::Well,
            recent: VecDeque::with_capacity(WINDOW),
            recent_nodes: VecDeque::with_capacity(WINDOW + 1),
            slow_reported_at: None,
            lost_at: None,
            answers: AnswerCounts::default(),
            degraded: StorelessCounts::default(),
            degraded_before: StorelessCounts::default(),
            well_for: 0,
        };
        tracker.show_state();
        tracker
    }

    /// Takes the state of the store at a monotonic `now`, and how many decisions were made since the start, by the store in
    /// time or not, and without it.
    pub(crate) fn tick(
        &mut self,
        now: Micros,
        health: StoreHealth,
        answers: AnswerCounts,
        counts: StorelessCounts,
        events: &Events,
    ) {
        self.breaker.set(health.breakers_open as f64);
        self.queue.set(health.waiting as f64);
        let before = std::mem::replace(&mut self.degraded, counts);
        let answered = std::mem::replace(&mut self.answers, answers);
        self.recent.truncate(WINDOW - 1);
        self.recent.push_front(AnswerCounts {
            decided: answers.decided.saturating_sub(answered.decided),
            late: answers.late.saturating_sub(answered.late),
        });
        self.recent_nodes.truncate(WINDOW);
        self.recent_nodes.push_front(health.late_by_node.clone());
        self.well_for = if health.trouble.is_some() { 0 } else { self.well_for.saturating_add(1) };
        self.log_warning(&health);
        self.now = health;
        let next = self.next_state();
        let last = std::mem::replace(&mut self.state, next);
        match (last, next) {
            (StoreState::Lost, StoreState::Lost) => {}
            (_, StoreState::Lost) => self.lose(now, before, events),
            (StoreState::Lost, _) => self.recover(now, counts, events),
            _ => {}
        }
        let is_news = self.slow_reported_at.is_none_or(|at| now.since_us(at) >= SLOW_REPORTED_EVERY_US);
        if let (StoreState::Well, StoreState::Slow, true, Some(why)) = (last, next, is_news, self.message()) {
            self.slow_reported_at = Some(now);
            tracing::warn!(target: "spile::store", store = self.now.store, "store slow: {why}");
            events.emit(EventKind::StoreSlow { why });
        }
        self.show_state();
    }

    fn next_state(&self) -> StoreState {
        let is_lost = self.now.trouble.is_some() || (self.lost_at.is_some() && self.well_for < CONVINCED);
        match self.in_window().late {
            _ if is_lost => StoreState::Lost,
            0 => StoreState::Well,
            _ => StoreState::Slow,
        }
    }

    fn in_window(&self) -> AnswerCounts {
        let late = self.recent.iter().map(|second| second.late).sum();
        let decided = self.recent.iter().map(|second| second.decided).sum::<u64>();
        // A decision may be counted a moment after its failure.
        AnswerCounts { decided: decided.max(late), late }
    }

    /// The nodes that did not answer in time within the window, the slowest first.
    fn slow_nodes(&self) -> Vec<(&str, u64)> {
        let (Some(now), Some(then)) = (self.recent_nodes.front(), self.recent_nodes.back()) else {
            return Vec::new();
        };
        let before = |node: &str| then.iter().find(|(name, _)| name == node).map_or(0, |(_, late)| *late);
        let mut slow: Vec<_> =
            now.iter().map(|(node, late)| (node.as_str(), late.saturating_sub(before(node)))).collect();
        slow.retain(|(_, late)| *late > 0);
        slow.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
        slow
    }

    fn lose(&mut self, now: Micros, before: StorelessCounts, events: &Events) {
        (self.lost_at, self.degraded_before) = (Some(now), before);
        let why = self.now.trouble.clone().unwrap_or_default();
        let (store, effect) = (&self.now.store, effect(&self.now.on_failure));
        if self.now.on_failure == "allow" {
            tracing::error!(target: "spile::store", store, why, "store lost: {effect}");
        } else {
            tracing::warn!(target: "spile::store", store, why, "store lost: {effect}");
        }
        events.emit(EventKind::StoreLost { why });
    }

    fn recover(&mut self, now: Micros, counts: StorelessCounts, events: &Events) {
        let lost_for_ms = self.lost_at.take().map_or(0, |lost_at| now.since_us(lost_at) / 1_000);
        // The decisions of the outage are reported here, and must not mark a recovered store as slow.
        self.recent.clear();
        self.state = StoreState::Well;
        let StorelessCounts { passed, refused, local } = counts.since(self.degraded_before);
        tracing::info!(
            target: "spile::store",
            store = self.now.store, lost_for_ms, not_enforced = passed, denied = refused, decided_locally = local,
            "store recovered after {:?}: {passed} requests passed without a limit, {refused} were denied, {local} \
             were decided by this instance alone",
            Duration::from_millis(lost_for_ms)
        );
        events.emit(EventKind::StoreRecovered { lost_for_ms });
    }

    fn show_state(&self) {
        for (state, gauge) in StoreState::ALL.iter().zip(&self.states) {
            gauge.set(if *state == self.state { 1.0 } else { 0.0 });
        }
    }

    /// Logs when a warning begins and when it ends, but not when its text changes in between.
    fn log_warning(&self, health: &StoreHealth) {
        match (&self.now.warning, &health.warning) {
            (None, Some(warning)) => tracing::warn!(target: "spile::store", "{warning}"),
            (Some(warning), None) => tracing::info!(target: "spile::store", "over: {warning}"),
            _ => {}
        }
    }

    pub(crate) const fn state(&self) -> StoreState {
        self.state
    }

    /// Why the store is slow or lost. `None` while it is well.
    pub(crate) fn message(&self) -> Option<String> {
        match self.state {
            StoreState::Well => None,
            StoreState::Slow => {
                let AnswerCounts { decided, late } = self.in_window();
                let within = match self.now.timeout_ms {
                    0 => "in time".to_owned(),
                    ms => format!("within {ms} ms"),
                };
                let (late, all) = (grouped(late), grouped(decided));
                let nodes: Vec<_> = self
                    .slow_nodes()
                    .iter()
                    .map(|(node, late)| format!("{node}: {}", grouped(*late)))
                    .collect();
                let nodes = if nodes.is_empty() { String::new() } else { format!(" ({})", nodes.join(", ")) };
                Some(format!(
                    "{late} of {all} decisions got no answer {within} in the last {WINDOW} s{nodes}"
                ))
            }
            StoreState::Lost => Some(
                self.now
                    .trouble
                    .clone()
                    .unwrap_or_else(|| "it answers again, for less than two seconds".to_owned()),
            ),
        }
    }

    pub(crate) fn now(&self) -> StoreHealth {
        self.now.clone()
    }
}

/// A number with a comma before each group of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
