//! A caller with a bucket of its own, who can tell from each answer whether it was meant for it.

use std::ops::RangeInclusive;

use spile_core::{Decision, FailureReason, Limit, Plan};

/// How far apart the capacities of two witnesses lie. More than any of them asks in a scenario, so that an answer from
/// another's bucket never looks like one from its own.
const APART: u64 = 6_000;

/// Knows how many tokens its bucket can hold after each answer.
///
/// Its bucket does not refill within a test, and nobody else spends from it. So an answered charge takes exactly one
/// token, and one whose fate is unknown takes one or none, now or later: anything else is a charge made twice or an
/// answer to somebody else's question.
#[derive(Debug)]
pub(crate) struct Witness {
    capacity: u64,
    asked: u64,
    left: u64,
    /// Charges that nobody answered, and that have not shown in the bucket yet.
    unknown: u64,
    /// Whether the fault may lose what Redis held, which fills the bucket again.
    state_may_be_lost: bool,
}

impl Witness {
    pub(crate) fn new(index: usize, state_may_be_lost: bool) -> Self {
        let capacity = capacity(index);
        Self { capacity, asked: 0, left: capacity, unknown: 0, state_may_be_lost }
    }

    /// The plan that witness number `index` asks under.
    pub(crate) fn plan(index: usize) -> Plan {
        let limit = Limit::per_hour(1).burst(capacity(index));
        Plan::new(&Self::plan_name(index), limit).expect("a plan within bounds")
    }

    pub(crate) fn plan_name(index: usize) -> String {
        format!("witness-{index}")
    }

    /// Looks at an answer, and says what is wrong with it.
    pub(crate) fn sees(&mut self, decision: &Decision) -> Result<(), String> {
        self.asked += 1;
        if let Some(reason) = decision.failure() {
            self.unknown += u64::from(may_have_run(reason));
            return Ok(());
        }
        let (left, expected) = (decision.remaining().whole_tokens(), self.expected());
        if !expected.contains(&left) || !decision.allowed() {
            return Err(format!("a witness who expected {expected:?} tokens was told {left}"));
        }
        self.unknown = self.unknown.saturating_sub(self.left.saturating_sub(1).saturating_sub(left));
        self.left = left;
        Ok(())
    }

    fn expected(&self) -> RangeInclusive<u64> {
        if self.state_may_be_lost {
            self.capacity - self.asked..=self.capacity - 1
        } else {
            let most = self.left - 1;
            most.saturating_sub(self.unknown)..=most
        }
    }
}

/// Whether Redis may have been asked. Where it surely was not, nothing may have been charged.
fn may_have_run(reason: FailureReason) -> bool {
    !matches!(reason, FailureReason::BreakerOpen | FailureReason::Overloaded)
}

fn capacity(index: usize) -> u64 {
    12_000 + APART * index as u64
}
