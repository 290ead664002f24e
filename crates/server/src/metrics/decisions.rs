//! Counts every decision by rule, limit, outcome and source.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use metrics::{Counter, Histogram, counter, histogram};
use parking_lot::Mutex;
use smol_str::SmolStr;
use spile_core::{Decision, FailureReason, LimitName, Reason, Source};
use spile_limiter::{Observed, Observer};

use super::{BUCKET_LEVEL, Telemetry};

/// The most pairs of rule and limit that have a series of their own; callers may invent rule ids without end.
const MAX_SERIES: usize = 2_000;
/// What a pair beyond the bound is counted as.
const OVERFLOW: &str = "__overflow__";

const SOURCES: [Source; 5] = [Source::Store, Source::DenyCache, Source::Lease, Source::Local, Source::Policy];
const OUTCOMES: [&str; 3] = ["allowed", "denied", "shadow"];
const FAILURES: [FailureReason; 6] = [
    FailureReason::RedisError,
    FailureReason::Timeout,
    FailureReason::BadResponse,
    FailureReason::BadTypes,
    FailureReason::BreakerOpen,
    FailureReason::Overloaded,
];

/// Hears of every decision and counts it. Clones count together.
#[derive(Clone)]
pub(crate) struct DecisionMetrics(Arc<Inner>);

struct Inner {
    telemetry: Telemetry,
    /// Replaced whole when a pair is new, so that counting never takes a lock.
    series: ArcSwap<SeriesByRule>,
    growing: Mutex<()>,
    fail_open: [Counter; FAILURES.len()],
    fail_closed: [Counter; FAILURES.len()],
}

type SeriesByLimit = HashMap<SmolStr, Arc<Series>, RandomState>;
type SeriesByRule = HashMap<SmolStr, SeriesByLimit, RandomState>;

/// The series of one rule and one limit.
struct Series {
    rule: SmolStr,
    limit: SmolStr,
    decisions: [[OnceLock<Counter>; SOURCES.len()]; OUTCOMES.len()],
    level: Histogram,
}

impl DecisionMetrics {
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        let failures = |name: &'static str| {
            FAILURES.map(|why| telemetry.register(|| counter!(name, "reason" => why.as_str())))
        };
        let fail_open = failures("ratelimit_failopen_total");
        let fail_closed = failures("ratelimit_failclosed_total");
        let (series, growing) = (ArcSwap::default(), Mutex::new(()));
        Self(Arc::new(Inner { telemetry, series, growing, fail_open, fail_closed }))
    }

    /// Gives a configured rule its series before callers' inventions can use up the bound.
    pub(crate) fn expect(&self, rule: &str, limit: &LimitName) {
        self.0.series(rule, limit.as_str()).count(&self.0.telemetry, "allowed", Source::Store, 0);
    }
}

impl Observer for DecisionMetrics {
    fn decided(&self, observed: &Observed<'_>) {
        let (rule, decision) = (observed.rule(), observed.decision());
        let binding = decision.binding();
        let series = self.0.series(rule.unwrap_or(""), binding.name().as_str());
        series.count(&self.0.telemetry, outcome(decision), decision.source(), 1);
        match decision.failure() {
            None => series.level.record(binding.level()),
            Some(why) => self.0.count_failure(decision.reason(), why),
        }
    }
}

impl Inner {
    fn series(&self, rule: &str, limit: &str) -> Arc<Series> {
        let known = self.series.load();
        let found = known.get(rule).and_then(|limits| limits.get(limit)).cloned();
        found.unwrap_or_else(|| self.grow(rule, limit))
    }

    #[cold]
    fn grow(&self, rule: &str, limit: &str) -> Arc<Series> {
        let _one_at_a_time = self.growing.lock();
        let known = self.series.load_full();
        let held: usize = known.values().map(HashMap::len).sum();
        let (rule, limit) = if held < MAX_SERIES { (rule, limit) } else { (OVERFLOW, OVERFLOW) };
        if let Some(series) = known.get(rule).and_then(|limits| limits.get(limit)) {
            return Arc::clone(series);
        }
        let series = Arc::new(Series::new(rule, limit, &self.telemetry));
        let mut grown = SeriesByRule::clone(&known);
        grown.entry(series.rule.clone()).or_default().insert(series.limit.clone(), Arc::clone(&series));
        self.series.store(Arc::new(grown));
        series
    }

    fn count_failure(&self, reason: Reason, why: FailureReason) {
        let Some(index) = FAILURES.iter().position(|&known| known == why) else { return };
        match reason {
            Reason::FailOpen => self.fail_open[index].increment(1),
            Reason::FailClosed => self.fail_closed[index].increment(1),
            _ => {}
        }
    }
}

impl Series {
    fn new(rule: &str, limit: &str, telemetry: &Telemetry) -> Self {
        let level = telemetry.register(|| histogram!(BUCKET_LEVEL, "limit" => limit.to_owned()));
        let decisions = std::array::from_fn(|_| std::array::from_fn(|_| OnceLock::new()));
        Self { rule: rule.into(), limit: limit.into(), decisions, level }
    }

    fn count(&self, telemetry: &Telemetry, outcome: &'static str, source: Source, by: u64) {
        let outcome_at = OUTCOMES.iter().position(|&known| known == outcome).unwrap_or(0);
        let source_at = SOURCES.iter().position(|&known| known == source).unwrap_or(0);
        let counter = self.decisions[outcome_at][source_at].get_or_init(|| {
            telemetry.register(|| {
                counter!("ratelimit_decisions_total", "rule" => self.rule.to_string(),
                    "limit" => self.limit.to_string(), "outcome" => outcome, "source" => source.as_str())
            })
        });
        counter.increment(by);
    }
}

fn outcome(decision: &Decision) -> &'static str {
    match (decision.allowed(), decision.reason()) {
        (_, Reason::Shadow) => "shadow",
        (true, _) => "allowed",
        (false, _) => "denied",
    }
}
