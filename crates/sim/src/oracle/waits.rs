//! Waits and remembered denials: a caller who waits for the reported time is let in, and the cache denies no caller whom the store would let in.

use std::collections::BTreeMap;

use spile_core::{Decision, DecisionSource, Limit};

use super::script::{BucketId, Executed, Op, Shape, Verdict};
use super::{Asked, Broken, pays};
use crate::fleet::node::Node;
use crate::fleet::report::{Owed, Report};
use crate::scenario::{Fault, Scenario};
use crate::scheduler::{MS, Nanos, US};

/// The oldest answer by which a lease denies.
const OLDEST_ANSWER: Nanos = 100 * MS;

/// A denial that a caller waits for.
struct Told {
    charges: Vec<Owed>,
    /// How often others had taken from each bucket.
    taken: Vec<u64>,
    disturbed: u64,
}

pub(crate) struct Waits {
    told: BTreeMap<u64, Told>,
    /// How it was when each open question was asked.
    asked: BTreeMap<u64, Told>,
    /// How often tokens were taken from each bucket.
    taken: BTreeMap<BucketId, u64>,
    /// When each instance last took from each bucket.
    taken_at: BTreeMap<BucketId, BTreeMap<usize, Nanos>>,
    has_faults: bool,
    /// When each bucket last became fuller by anything but time.
    given: BTreeMap<BucketId, Nanos>,
    /// When a plan last changed.
    changed: BTreeMap<&'static str, Nanos>,
    /// When a clock of a node stepped, or a node lost data. How often.
    disturbed: (Nanos, u64),
    remembers: Nanos,
    /// The longest time in which an answer comes.
    trip: Nanos,
    drifts: bool,
    nodes: usize,
}

impl Waits {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            told: BTreeMap::new(),
            asked: BTreeMap::new(),
            taken: BTreeMap::new(),
            taken_at: BTreeMap::new(),
            has_faults: false,
            given: BTreeMap::new(),
            changed: BTreeMap::new(),
            disturbed: (0, 0),
            remembers: scenario.fleet.deny_cache_ms * MS,
            trip: scenario.fleet.timeout_ms * MS,
            drifts: scenario.fleet.drift_ppm != 0 || scenario.fleet.node_drift_ppm != 0,
            nodes: usize::from(scenario.fleet.nodes),
        }
    }

    pub(crate) fn failed(&mut self, now: Nanos, fault: Fault) {
        self.has_faults = true;
        if fault.loses_state() {
            self.disturbed = (now, self.disturbed.1 + 1);
        }
    }

    /// As long as instances disagree about a plan, it has always changed a moment ago.
    pub(crate) fn plan_changed(&mut self, now: Nanos, plan: &'static str, everywhere: bool) {
        self.changed.insert(plan, if everywhere { now } else { Nanos::MAX / 2 });
    }

    pub(crate) fn forget(&mut self, question: u64) {
        self.told.remove(&question);
        self.asked.remove(&question);
    }

    pub(crate) fn executed(&mut self, now: Nanos, instance: usize, question: &Executed) {
        if matches!(question.verdict, Verdict::Denied | Verdict::Before | Verdict::Expired | Verdict::Unknown)
        {
            return;
        }
        let gives =
            matches!(question.operation, Op::Refund | Op::RefundOnce | Op::Release | Op::Reset | Op::Settle);
        let takes = !gives && question.operation != Op::Peek || question.operation == Op::Settle;
        for charge in question.charges.iter().filter(|charge| pays(&charge.bucket)) {
            // An amount that returns under a former limit may leave less than it would under the present one.
            let is_changed = self.changed.contains_key(plan_of(&charge.bucket));
            if (takes || is_changed && gives) && charge.cost != 0 {
                *self.taken.entry(charge.bucket.clone()).or_default() += 1;
                self.taken_at.entry(charge.bucket.clone()).or_default().insert(instance, now);
            }
            if gives || matches!(question.verdict, Verdict::Refused(..)) {
                self.given.insert(charge.bucket.clone(), now);
            }
        }
    }

    pub(crate) fn decided(
        &mut self,
        report: &Report,
        asked: &Asked,
        decision: &Decision,
        waited: bool,
        nodes: &[Node],
    ) -> Result<(), Broken> {
        let number = report.question;
        let told = self.told.remove(&number);
        if decision.degraded() || asked.shadow {
            return Ok(());
        }
        if let (true, false, Some(told)) = (waited, decision.allowed(), told) {
            self.was_let_in(number, asked, decision, &told)?;
        }
        if decision.allowed() {
            if decision.source() == DecisionSource::Lease {
                for owed in &asked.charges {
                    *self.taken.entry(owed.bucket.clone()).or_default() += 1;
                }
            }
            return Ok(());
        }
        if matches!(decision.source(), DecisionSource::DenyCache | DecisionSource::Lease) {
            self.would_deny(report, asked, decision, nodes)?;
        }
        let told = self.asked.remove(&number);
        let is_remembered = decision.source() != DecisionSource::Store || asked.charges.iter().any(is_leased);
        if is_remembered && self.is_outdated(report, asked) {
            return Ok(());
        }
        if let Some(told) = told {
            self.told.insert(number, told);
        }
        Ok(())
    }

    /// True if what the instance remembers of a bucket need not know of the last spend: that was another's, or its answer is on its way.
    fn is_outdated(&self, report: &Report, asked: &Asked) -> bool {
        if self.disturbed.1 > 0 && self.disturbed.0 + self.remembers + MS >= report.at {
            return true;
        }
        let knows_after = |instance, owed: &Owed| {
            let lease = owed.limit.lease().map_or(0, |lease| lease.as_nanos() as Nanos);
            let remembers = self.remembers.max(lease) + MS;
            if instance == report.instance && !self.has_faults { 2 * MS } else { remembers }
        };
        asked.charges.iter().any(|owed| {
            // The note may have been renewed by a peek, which does not cut the usage of a quota to other windows.
            if owed.bucket.shape == Shape::Quota && self.changed.contains_key(plan_of(&owed.bucket)) {
                return true;
            }
            let taken = self.taken_at.get(&owed.bucket).into_iter().flatten();
            taken.into_iter().any(|(instance, at)| *at + knows_after(*instance, owed) >= report.at)
        })
    }

    /// Hears of a question before it is asked.
    pub(crate) fn asks(&mut self, number: u64, charges: &[Owed]) {
        let taken = charges.iter().map(|owed| self.taken.get(&owed.bucket).copied().unwrap_or(0)).collect();
        let told = Told { charges: charges.to_vec(), taken, disturbed: self.disturbed.1 };
        self.asked.insert(number, told);
    }

    fn was_let_in(&self, number: u64, asked: &Asked, decision: &Decision, told: &Told) -> Result<(), Broken> {
        let taken = |owed: &Owed| self.taken.get(&owed.bucket).copied().unwrap_or(0);
        let was_alone = asked.charges.iter().map(taken).eq(told.taken.iter().copied());
        let same = |now: &Owed, then: &Owed| {
            now.bucket == then.bucket && now.cost == then.cost && now.limit == then.limit
        };
        let is_same = asked.charges.len() == told.charges.len()
            && asked.charges.iter().zip(&told.charges).all(|(now, then)| same(now, then));
        let takes_permits = asked.charges.iter().any(|owed| owed.bucket.shape == Shape::Concurrency);
        if was_alone && is_same && !takes_permits && !self.drifts && told.disturbed == self.disturbed.1 {
            let what = format!(
                "q{number} waited as told, was alone, and was denied by {} for {:?} more",
                decision.source().as_str(),
                decision.retry_after()
            );
            let oracle = if asked.charges.iter().any(is_leased) {
                "let in after waiting, leased"
            } else {
                "let in after waiting"
            };
            return Err(Broken::new(oracle, what));
        }
        Ok(())
    }

    /// A denial that the store was not asked for is one that it would give, too, unless tokens came back a moment ago, or the bucket is so
    /// nearly empty that a lease hands it out in portions.
    fn would_deny(
        &self,
        report: &Report,
        asked: &Asked,
        decision: &Decision,
        nodes: &[Node],
    ) -> Result<(), Broken> {
        let now = report.at;
        let by_lease = decision.source() == DecisionSource::Lease;
        let bound =
            if by_lease { self.remembers.max(OLDEST_ANSWER) + self.trip } else { self.remembers } + MS;
        let lately = |at: Nanos| at + bound >= now;
        if self.disturbed.1 > 0 && lately(self.disturbed.0) {
            return Ok(());
        }
        let mut states = Vec::new();
        for owed in asked.charges.iter().filter(|owed| owed.bucket.shape != Shape::Concurrency) {
            let changed = self.changed.get(plan_of(&owed.bucket)).copied();
            let is_changed = changed.is_some_and(lately);
            if is_changed || self.given.get(&owed.bucket).copied().is_some_and(lately) {
                return Ok(());
            }
            let node = &nodes[crate::fleet::cluster::node_of(&owed.bucket.key, self.nodes)];
            // A clock that drifts, and the time of the poll.
            let server_us = node.clock_us(now.saturating_sub(100 * US));
            let capacity = i128::from(owed.limit.capacity().micro());
            if changed.is_some() && !node.oracle.was_asked_under(&owed.bucket, &owed.limit) {
                return Ok(());
            }
            let available = node.oracle.available(&owed.bucket, server_us).unwrap_or(capacity).min(capacity);
            let asked_for = i128::from(if owed.cost == 0 { owed.limit.quantum().micro() } else { owed.cost });
            if available < asked_for || by_lease && available <= self.scarce_level(&owed.limit) {
                return Ok(());
            }
            states.push(format!("{:?} has {available} of {asked_for}", owed.bucket));
        }
        let what = format!(
            "q{} was denied by {} while {}; limited by {:?}",
            report.question,
            decision.source().as_str(),
            states.join(", "),
            decision.limited_by(),
        );
        Err(Broken::new(if by_lease { "denied by lease" } else { "denied by cache" }, what))
    }

    /// The level from which a leased bucket is handed out in portions: 6% of its capacity, and its refill within the lease's time or a
    /// quarter of a second. The instance knows it as of the last answer, which is one trip old, and in whole tokens.
    fn scarce_level(&self, limit: &Limit) -> i128 {
        let (Some(rate), Some(lease)) = (limit.rate(), limit.lease()) else { return 0 };
        let period_us = rate.period().as_micros().cast_signed();
        let refill_in = |us: u128| i128::from(rate.refill().micro()) * us.cast_signed() / period_us;
        let level =
            refill_in(lease.as_micros().min(250_000)).min(i128::from(limit.capacity().micro()) * 6 / 100);
        level + refill_in(u128::from(self.trip / US)) + i128::from(limit.quantum().micro())
    }
}

fn plan_of(bucket: &BucketId) -> &str {
    bucket.key.rsplit(':').next().unwrap_or_default()
}

/// True if an instance may answer for the bucket with tokens that it took before. It does not know of what others charge meanwhile.
fn is_leased(owed: &Owed) -> bool {
    owed.limit.lease().is_some()
}
