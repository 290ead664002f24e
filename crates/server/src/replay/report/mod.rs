//! The report of a replay: as a table for people, and as JSON.

mod table;

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::limited_keys::LimitedKey;
use super::scenario::Scenario;
use super::tally::RuleTally;
use super::text::{exact_time, grouped, span};
use super::timeline::IntervalCounts;
use super::{LogLines, SHOWN_LINES};

/// A line that is out of order by this much or more causes a warning.
const FAR_BEHIND: Duration = Duration::from_secs(60);

/// The results of a replay.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayReport {
    pub(super) logs: Vec<String>,
    /// Lines that are not empty.
    pub(super) lines: u64,
    /// Lines that cannot be read.
    pub(super) unreadable: u64,
    pub(super) first_unreadable: Vec<UnreadableLine>,
    /// Lines with an earlier time than one before them.
    pub(super) out_of_order: u64,
    pub(super) furthest_behind_ms: u64,
    pub(super) from: String,
    pub(super) to: String,
    /// Notes about all configurations.
    pub(super) notes: Vec<String>,
    pub(super) configs: Vec<ConfigReport>,
    #[serde(skip)]
    pub(super) span: Duration,
}

/// A line that cannot be read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnreadableLine {
    file: String,
    line: u64,
    why: String,
}

/// The results of one configuration.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigReport {
    pub(super) config: String,
    #[serde(flatten)]
    pub(super) requests: RequestCounts,
    /// Requests that no rule limits. They are among those that are allowed.
    pub(super) unlimited: u64,
    /// Requests that a server refuses before it asks a rule.
    pub(super) malformed: u64,
    /// Requests for which the gateway has no route.
    pub(super) unrouted: u64,
    pub(super) rules: Vec<RuleReport>,
    /// The keys that were limited most.
    pub(super) keys: Vec<KeyReport>,
    /// The number of limited keys: a lower bound if counts have an error.
    pub(super) limited_keys: usize,
    /// By how much the count of a key may be too low.
    pub(super) key_count_error: u64,
    /// When the first interval starts.
    pub(super) start: String,
    pub(super) interval_seconds: u64,
    pub(super) intervals: IntervalSeries,
    pub(super) notes: Vec<String>,
    /// Why requests were malformed.
    #[serde(skip)]
    pub(super) malformed_by: Vec<(&'static str, u64)>,
}

/// Requests by outcome.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestCounts {
    pub(super) requests: u64,
    pub(super) allowed: u64,
    /// Denied by a limit.
    pub(super) limited: u64,
    /// Let through although a rule in shadow mode would have denied.
    pub(super) would_limit: u64,
    /// Refused regardless of the buckets.
    pub(super) refused: u64,
}

/// The results of a rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleReport {
    pub(super) id: String,
    pub(super) mode: &'static str,
    #[serde(flatten)]
    pub(super) requests: RequestCounts,
    pub(super) first_limited: Option<String>,
    pub(super) last_limited: Option<String>,
    pub(super) limits: Vec<LimitReport>,
    pub(super) refusals: Vec<RefusalReport>,
    pub(super) intervals: IntervalSeries,
}

/// The results of a limit.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LimitReport {
    pub(super) name: String,
    pub(super) limited: u64,
    pub(super) longest_wait_ms: u64,
}

/// Why a rule refused requests.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RefusalReport {
    pub(super) why: &'static str,
    pub(super) count: u64,
}

/// A key that was limited.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeyReport {
    pub(super) key: String,
    pub(super) rule: String,
    pub(super) limited: u64,
    pub(super) first: String,
    pub(super) last: String,
    pub(super) longest_wait_ms: u64,
}

/// Requests in each interval.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IntervalSeries {
    pub(super) allowed: Vec<u64>,
    pub(super) limited: Vec<u64>,
    pub(super) would_limit: Vec<u64>,
    pub(super) refused: Vec<u64>,
}

impl ReplayReport {
    pub(super) fn new(
        logs: &[PathBuf],
        seen: &LogLines,
        scenarios: &[Scenario],
        top: usize,
        spread: bool,
    ) -> Self {
        let (from, to) = seen.order.span.unwrap_or_default();
        let unreadable = seen.first_unreadable.iter().map(|(place, why)| UnreadableLine {
            file: place.file.to_string(),
            line: place.line,
            why: why.to_string(),
        });
        Self {
            logs: logs.iter().map(|path| path.display().to_string()).collect(),
            lines: seen.lines,
            unreadable: seen.unreadable,
            first_unreadable: unreadable.collect(),
            out_of_order: seen.order.late,
            furthest_behind_ms: seen.order.furthest_us.div_ceil(1_000),
            from: exact_time(from),
            to: exact_time(to),
            notes: notes(seen, spread),
            configs: scenarios.iter().map(|scenario| ConfigReport::new(scenario, top)).collect(),
            span: Duration::from_micros(to.since_us(from)),
        }
    }
}

/// Notes for readers of the figures about the log.
fn notes(seen: &LogLines, spread: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if seen.unreadable > 0 {
        let first: Vec<String> =
            seen.first_unreadable.iter().map(|(place, why)| format!("{}: {why}", place.shown())).collect();
        let which = if seen.unreadable > SHOWN_LINES as u64 { "; the first are " } else { ": " };
        let (count, lines) = (grouped(seen.unreadable), grouped(seen.lines));
        notes.push(format!("{count} of {lines} lines could not be read{which}{}", first.join("; ")));
    }
    if seen.order.late > 0 {
        let furthest = Duration::from_micros(seen.order.furthest_us);
        let far =
            if furthest >= FAR_BEHIND { ". Sort the log by time before you trust the figures" } else { "" };
        let lines = if seen.order.late == 1 { "line is" } else { "lines are" };
        notes.push(format!(
            "{} {lines} earlier than one before, by up to {}, and decided at the latest time so far{far}",
            grouped(seen.order.late),
            span(furthest)
        ));
    }
    if seen.order.whole_seconds {
        notes.push(if spread {
            "the log has no fractions of seconds: requests of one second were spread evenly over it, in the order of the log"
                .to_owned()
        } else {
            "the log has no fractions of seconds: requests of one second were decided at its start".to_owned()
        });
    }
    notes
}

impl ConfigReport {
    fn new(scenario: &Scenario, top: usize) -> Self {
        let tally = &scenario.tally;
        let rules = tally.rules.iter().enumerate();
        Self {
            config: scenario.name.clone(),
            requests: tally.counts.into(),
            unlimited: tally.unlimited,
            malformed: tally.malformed.values().sum(),
            unrouted: tally.unrouted,
            rules: rules.map(|(at, rule)| RuleReport::new(rule, tally.intervals_of(at))).collect(),
            keys: tally.keys.top(top).iter().map(KeyReport::from).collect(),
            limited_keys: tally.keys.count(),
            key_count_error: tally.keys.error,
            start: exact_time(tally.timeline.start()),
            interval_seconds: tally.timeline.interval().as_secs(),
            intervals: IntervalSeries::from(tally.intervals()),
            notes: scenario.notes(),
            malformed_by: tally.malformed.iter().map(|(why, count)| (*why, *count)).collect(),
        }
    }
}

impl RuleReport {
    fn new(rule: &RuleTally, intervals: &[IntervalCounts]) -> Self {
        let limit = |(name, limit): (&spile_core::LimitName, &super::tally::LimitTally)| LimitReport {
            name: name.to_string(),
            limited: limit.count,
            longest_wait_ms: whole_ms(limit.longest_wait),
        };
        let refusal = |(why, count): (&&'static str, &u64)| RefusalReport { why, count: *count };
        Self {
            id: rule.id.to_string(),
            mode: if rule.shadow { "shadow" } else { "enforce" },
            requests: rule.counts.into(),
            first_limited: rule.limited.map(|(first, _)| exact_time(first)),
            last_limited: rule.limited.map(|(_, last)| exact_time(last)),
            limits: rule.limits.iter().map(limit).collect(),
            refusals: rule.refusals.iter().map(refusal).collect(),
            intervals: IntervalSeries::from(intervals),
        }
    }
}

impl From<IntervalCounts> for RequestCounts {
    fn from(counts: IntervalCounts) -> Self {
        let IntervalCounts { allowed, limited, would_limit, refused } = counts;
        Self { requests: counts.total(), allowed, limited, would_limit, refused }
    }
}

impl RequestCounts {
    /// Those that a limit denied, or would have denied.
    pub(super) const fn held_back(&self) -> u64 {
        self.limited + self.would_limit
    }
}

impl From<&LimitedKey> for KeyReport {
    fn from(key: &LimitedKey) -> Self {
        Self {
            key: key.key.to_string(),
            rule: key.rule.to_string(),
            limited: key.count,
            first: exact_time(key.first),
            last: exact_time(key.last),
            longest_wait_ms: whole_ms(key.longest_wait),
        }
    }
}

impl From<&[IntervalCounts]> for IntervalSeries {
    fn from(counts: &[IntervalCounts]) -> Self {
        Self {
            allowed: counts.iter().map(|counts| counts.allowed).collect(),
            limited: counts.iter().map(|counts| counts.limited).collect(),
            would_limit: counts.iter().map(|counts| counts.would_limit).collect(),
            refused: counts.iter().map(|counts| counts.refused).collect(),
        }
    }
}

fn whole_ms(span: Duration) -> u64 {
    span.as_micros().div_ceil(1_000) as u64
}
