//! Counts decisions on behalf of an observer, in a table of the deciding thread.

use spile_core::{Decision, DecisionSource, LimitStatus, Micros, Reason};
use thread_local::ThreadLocal;

use super::thread_counts::ThreadCounts;
use super::{Observed, RuleName};

/// Counts decisions by series: by rule, binding limit, outcome and source. Threads share no memory that is written to, and
/// the observer is not called for a decision that is like earlier ones.
///
/// An observer with [counts](crate::Observer::counts) is called if the series has no cell yet
/// ([`make_room`](Self::make_room)), if the decision is [picked](Self::pick) as a sample, and if it is unusual: for a
/// tenant, in shadow mode, partial, or without the store. The observer then [adds](Self::add) the decision itself. All other
/// decisions are added by the limiter.
#[derive(Debug, Default)]
pub struct DecisionCounts {
    lanes: ThreadLocal<ThreadCounts>,
}

/// Identifies a series: a hash of what it is counted by. Two reasons for one outcome are two series.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Series(u64);

impl Series {
    /// The series that this decision belongs to.
    pub fn of(observed: &Observed<'_>) -> Self {
        use DecisionSource::{DenyCache, Lease, Store};
        let decision = observed.decision();
        let (rule, limit) = (observed.rule, decision.binding());
        match (decision.source(), decision.reason()) {
            (source @ (Store | DenyCache | Lease), Reason::Ok | Reason::Limited) => {
                Self::plain(rule, limit, source, decision.allowed())
            }
            (source, reason) => {
                let code = (1 + reason as u64) << 8 | (source as u64) << 1 | u64::from(decision.allowed());
                Self::coded(rule, limit, code)
            }
        }
    }

    /// The series of requests that this rule does not limit.
    pub fn unlimited(rule: RuleName<'_>) -> Self {
        // No decision has this code.
        Self::hashed(rule.tag().wrapping_add(0xFF << 8))
    }

    /// A series of other things that an observer counts, by a hash with a seed of this process.
    #[inline]
    pub const fn hashed(hash: u64) -> Self {
        // Never zero, which marks a free cell. The multiplication by an odd number moves a difference in the low bits, where
        // the outcome is, into the high bits, by which cells are found.
        Self(hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The series of decisions by what the store said, outside of shadow mode.
    #[inline]
    fn plain(rule: Option<RuleName<'_>>, limit: &LimitStatus, source: DecisionSource, allowed: bool) -> Self {
        Self::coded(rule, limit, (source as u64) << 1 | u64::from(allowed))
    }

    #[inline]
    fn coded(rule: Option<RuleName<'_>>, limit: &LimitStatus, code: u64) -> Self {
        let rule = rule.map_or(0, |rule| rule.tag());
        Self::hashed((rule ^ limit.tag()).wrapping_add(code))
    }
}

impl DecisionCounts {
    /// Empty counts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one to the series. False if it has no cell in this thread's table.
    pub fn add(&self, series: Series) -> bool {
        self.lane().count(series.0)
    }

    /// Gives the series a cell in this thread's table. False if there is no free one.
    pub fn make_room(&self, series: Series) -> bool {
        self.lane().make_room(series.0)
    }

    /// How many decisions this sample stands for. `None` if it is not picked. Every decision of a burst of up to a thousand is
    /// picked, and after that a bounded number per second.
    ///
    /// Seconds are counted by the clock of this machine, because the nodes of a store may have different ones.
    pub fn pick(&self, observed: &Observed<'_>) -> Option<u64> {
        self.lane().sampler(observed.decision().allowed()).pick(observed.heard_at())
    }

    /// Calls `take` with what every thread has counted since the last call. Only one thread may drain at a time.
    pub fn drain(&self, mut take: impl FnMut(Series, u64)) {
        for lane in &self.lanes {
            lane.drain(|print, more| take(Series(print), more));
        }
    }

    /// Adds a decision of the store that is like earlier ones. False if it is not like them: then nothing was added.
    ///
    /// Not inlined: that would change the layout of the code that decides.
    #[inline(never)]
    pub(crate) fn add_plain(
        &self,
        rule: Option<RuleName<'_>>,
        decision: &Decision,
        heard_at: Micros,
    ) -> bool {
        let (limit, allowed) = (decision.binding(), decision.allowed());
        let series = Series::plain(rule, limit, decision.source(), allowed);
        let Some(lane) = self.lanes.get() else { return false };
        lane.count_unless_picked(series.0, allowed, heard_at)
    }

    fn lane(&self) -> &ThreadCounts {
        self.lanes.get_or(ThreadCounts::new)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use spile_core::{
        Bucket, Charges, Cost, FailureReason, Key, Limit, LimitName, NamedLimit, OneOrMany, Outcome,
    };
    use std::time::Duration;

    use DecisionSource::{DenyCache, Lease, Local, Policy, Store};

    use super::*;

    fn charges(limit: &str) -> Charges<'static> {
        let named = NamedLimit::new(LimitName::new(limit).unwrap(), Limit::per_second(1).build().unwrap());
        Charges::one(Key::new("ann").unwrap(), &named, Cost::ONE).unwrap()
    }

    fn decision(limit: &str, allowed: bool, source: DecisionSource) -> Decision {
        let (charges, at) = (charges(limit), Micros::from_secs(1));
        let bucket = Bucket::full(charges[0].limit().limit(), at);
        Decision::from_outcome(&charges, &Outcome { allowed, at, buckets: OneOrMany::one(bucket) }, source)
    }

    #[test]
    fn decisions_that_differ_in_outcome_reason_or_source_are_counted_apart() {
        let (charges, failure, at) = (charges("free"), FailureReason::Timeout, Micros::from_secs(1));
        let mut decisions = vec![
            Decision::fail_open(&charges, failure, at),
            Decision::fail_closed(&charges, failure, at, Duration::ZERO),
        ];
        for allowed in [true, false] {
            decisions.push(decision("free", allowed, DecisionSource::Local).taken_locally(failure));
            for source in [Store, Local, Policy, DenyCache, Lease] {
                decisions.push(decision("free", allowed, source));
            }
        }
        for source in [DecisionSource::Store, DecisionSource::Local] {
            decisions.push(decision("free", false, source).shadowed());
        }
        let series: HashSet<_> =
            decisions.iter().map(|decision| Series::of(&Observed::new(&charges, decision))).collect();
        assert_eq!(series.len(), decisions.len());
    }

    #[test]
    fn rules_and_limits_are_counted_apart() {
        let series =
            |rule, decision: &Decision| Series::plain(rule, decision.binding(), DecisionSource::Store, true);
        let limit = |number| decision(&format!("limit-{number}"), true, DecisionSource::Store);
        let limits: Vec<_> = (0..2_000).map(limit).collect();
        let without_rule: HashSet<_> = limits.iter().map(|limit| series(None, limit)).collect();
        assert_eq!(without_rule.len(), 2_000);
        // Of a hash that has few zeros, a rule's hash could change few bits if the two were not mixed well.
        let full = limits.iter().max_by_key(|limit| limit.binding().tag().count_ones()).unwrap();
        let texts: Vec<_> = (0..5_000).map(|rule| format!("rule {rule}")).collect();
        let by_rule: HashSet<_> = texts.iter().map(|text| series(Some(RuleName::new(text)), full)).collect();
        assert_eq!(by_rule.len(), 5_000);
    }

    #[test]
    fn no_hash_makes_a_series_that_looks_like_a_free_cell() {
        // Newton's method: each step doubles the bits of the inverse that are right. Its product with the factor is 1.
        let factor = 0x9E37_79B9_7F4A_7C15_u64;
        let inverse = (0..6)
            .fold(1_u64, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse))));
        assert_eq!(factor.wrapping_mul(inverse), 1);
        assert!([0, inverse].iter().all(|hash| Series::hashed(*hash).0 != 0));
    }
}
