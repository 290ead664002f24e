//! The outcomes of requests: in total, under each rule, and by each limit.

use std::collections::BTreeMap;
use std::time::Duration;

use foldhash::HashMap;
use smol_str::SmolStr;
use spile_core::{LimitName, Micros};
use spile_policy::Rule;

use super::limited_keys::LimitedKeys;
use super::timeline::{IntervalCounts, Timeline};

/// The series of all requests in the timeline. Those of the rules follow it.
const ALL: usize = 0;

/// The outcome of one request, or of its part under one rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ReplayOutcome {
    Allowed,
    /// Denied by a limit.
    Limited,
    /// Let through although a rule in shadow mode would have denied it.
    WouldLimit,
    /// Refused regardless of the buckets.
    Refused,
}

impl ReplayOutcome {
    /// The word for it in CSV.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Limited => "limited",
            Self::WouldLimit => "would_limit",
            Self::Refused => "refused",
        }
    }

    const fn of(self, counts: &mut IntervalCounts) -> &mut u64 {
        match self {
            Self::Allowed => &mut counts.allowed,
            Self::Limited => &mut counts.limited,
            Self::WouldLimit => &mut counts.would_limit,
            Self::Refused => &mut counts.refused,
        }
    }
}

/// The outcomes under a rule.
#[derive(Debug)]
pub(super) struct RuleTally {
    pub(super) id: SmolStr,
    pub(super) shadow: bool,
    pub(super) counts: IntervalCounts,
    /// When it first limited a request, and when it last did.
    pub(super) limited: Option<(Micros, Micros)>,
    pub(super) limits: BTreeMap<LimitName, LimitTally>,
    /// Why it refused requests, and how many.
    pub(super) refusals: BTreeMap<&'static str, u64>,
}

/// The outcomes by a limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LimitTally {
    pub(super) count: u64,
    pub(super) longest_wait: Duration,
}

/// Everything that is counted for one configuration.
#[derive(Debug, Default)]
pub(super) struct ReplayTally {
    pub(super) counts: IntervalCounts,
    /// Requests that no rule limits. They are among those that are allowed.
    pub(super) unlimited: u64,
    /// Requests that a server refuses before it asks a rule, by reason.
    pub(super) malformed: BTreeMap<&'static str, u64>,
    /// Requests for which the gateway has no route.
    pub(super) unrouted: u64,
    pub(super) rules: Vec<RuleTally>,
    pub(super) keys: LimitedKeys,
    pub(super) timeline: Timeline,
    indexes: HashMap<SmolStr, usize>,
}

impl ReplayTally {
    /// A tally with these rules, whether or not a request matches them.
    pub(super) fn new<'r>(rules: impl IntoIterator<Item = &'r Rule>) -> Self {
        let mut tally = Self::default();
        for rule in rules {
            tally.index(&rule.id, rule.shadow);
        }
        tally
    }

    /// Counts a request as a whole.
    pub(super) fn request(&mut self, outcome: ReplayOutcome, at: Micros) {
        *outcome.of(&mut self.counts) += 1;
        *outcome.of(self.timeline.at(ALL, at)) += 1;
    }

    /// Counts a request under one of the rules that it falls under.
    pub(super) fn under_rule(&mut self, rule: &str, shadow: bool, outcome: ReplayOutcome, at: Micros) {
        let index = self.index(rule, shadow);
        let tally = &mut self.rules[index];
        *outcome.of(&mut tally.counts) += 1;
        if matches!(outcome, ReplayOutcome::Limited | ReplayOutcome::WouldLimit) {
            tally.limited = Some((tally.limited.map_or(at, |(first, _)| first), at));
        }
        *outcome.of(self.timeline.at(ALL + 1 + index, at)) += 1;
    }

    /// Counts which limit of a rule denied which key.
    pub(super) fn limit(&mut self, rule: &str, limit: &LimitName, key: &str, at: Micros, wait: Duration) {
        let index = self.index(rule, false);
        let limits = &mut self.rules[index].limits;
        let tally = match limits.get_mut(limit) {
            Some(tally) => tally,
            None => limits.entry(limit.clone()).or_default(),
        };
        tally.count += 1;
        tally.longest_wait = tally.longest_wait.max(wait);
        self.keys.note(rule, key, at, wait);
    }

    /// Counts why a rule refused a request.
    pub(super) fn refusal(&mut self, rule: &str, why: &'static str) {
        let index = self.index(rule, false);
        *self.rules[index].refusals.entry(why).or_default() += 1;
    }

    /// The counts of all requests in each interval.
    pub(super) fn intervals(&self) -> &[IntervalCounts] {
        self.timeline.series(ALL)
    }

    /// The counts of a rule's requests in each interval.
    pub(super) fn intervals_of(&self, rule: usize) -> &[IntervalCounts] {
        self.timeline.series(ALL + 1 + rule)
    }

    fn index(&mut self, id: &str, shadow: bool) -> usize {
        if let Some(&index) = self.indexes.get(id) {
            return index;
        }
        let (id, index) = (SmolStr::new(id), self.rules.len());
        self.rules.push(RuleTally {
            id: id.clone(),
            shadow,
            counts: IntervalCounts::default(),
            limited: None,
            limits: BTreeMap::new(),
            refusals: BTreeMap::new(),
        });
        self.indexes.insert(id, index);
        index
    }
}
