//! Which verdicts and amounts are right, given how a question finds its buckets.

use super::bucket::{Look, Outcome, Plan, Range};
use super::marker::MarkerLook;
use super::permit::Places;
use super::question::Judgement;
use super::state::Fields;
use super::types::{Found, Op, Verdict};
use super::wire::{Charge, Question, Spent};

/// A charge as its question finds and leaves it.
#[expect(
    clippy::large_enum_variant,
    reason = "most findings are buckets, and a box for each would cost more"
)]
#[derive(Clone, Copy)]
pub(super) enum Finding {
    Bucket {
        look: Look,
        outcome: Outcome,
        /// Whether any other answer would do, too.
        is_adopted: bool,
        /// Whether the bucket may not be stored, although it is taken for stored.
        may_be_gone: bool,
        /// The uncovered amount if it is not stored.
        other: Option<Range>,
        replied: Fields,
    },
    Places(Places, i128, Found),
}

impl Finding {
    pub(super) fn available(&self) -> Range {
        match self {
            Self::Bucket { look, .. } => look.available,
            Self::Places(places, ..) => places.available,
        }
    }

    pub(super) const fn is_adopted(&self) -> bool {
        matches!(self, Self::Bucket { is_adopted: true, .. })
    }
}

impl Judgement<'_> {
    /// Checks a verdict that depends on tokens, places and permits.
    pub(super) fn check_verdict(
        &self,
        question: &Question<'_>,
        verdict: &Verdict,
        findings: &[Finding],
        marker: Option<&MarkerLook>,
    ) -> Result<(), String> {
        let charged = || question.charges.iter().zip(findings);
        let held = |what: fn(&Places) -> bool| {
            findings.iter().filter_map(move |finding| match finding {
                Finding::Places(places, ..) => Some(what(places)),
                Finding::Bucket { .. } => None,
            })
        };
        // Whether it has to be done, and whether it may be.
        let (must, may) = match question.op {
            _ if *verdict == Verdict::OutsideWindows || findings.iter().any(Finding::is_adopted) => {
                (false, true)
            }
            Op::Renew => {
                (held(|set| set.is_held).all(|held| held), held(|set| set.may_be_held).all(|held| held))
            }
            Op::Release => {
                (held(|set| set.is_held).any(|held| held), held(|set| set.may_be_held).any(|held| held))
            }
            op if op.needs_cover() => {
                let covers = |charge: &Charge, there| {
                    there >= if charge.cost == 0 { charge.limit.quantum } else { charge.cost }
                };
                let must = charged().all(|(charge, finding)| covers(charge, finding.available().least));
                let may = charged().all(|(charge, finding)| covers(charge, finding.available().most));
                let (absent, live) =
                    marker.map_or((true, false), |marker| (marker.may_be_absent, marker.may_be_live));
                (must && !live, may && absent)
            }
            _ => (false, true),
        };
        let done = *verdict == Verdict::Done;
        if done && !may || *verdict == Verdict::Denied && must {
            let there = |(charge, finding): (&Charge, &Finding)| {
                format!("{:?} has {} for {}", self.id(charge), finding.available().least, charge.cost)
            };
            let there: Vec<_> = charged().map(there).collect();
            return Err(format!(
                "{:?} at {} cannot be {verdict:?}: {}",
                question.op,
                self.now,
                there.join(", ")
            ));
        }
        Ok(())
    }
}

/// How a question with this verdict treats each bucket.
pub(super) fn plans(
    question: &Question<'_>,
    verdict: &Verdict,
    amount: i128,
    marker: Option<&MarkerLook>,
    now: i128,
) -> Result<Vec<Plan>, String> {
    let spent = spent(question, marker, now);
    let plan = |charge: &Charge| {
        let cost = charge.cost;
        Some(match (question.op, verdict) {
            (_, Verdict::OutsideWindows) => Plan::Look,
            (Op::Spend | Op::Reserve | Op::Acquire | Op::Retake, Verdict::Done) => Plan::Take(cost),
            (Op::Spend | Op::Reserve | Op::Acquire | Op::Retake | Op::SpendUpTo, Verdict::Denied) => {
                Plan::Ask
            }
            (Op::Peek | Op::Renew, Verdict::Done | Verdict::Denied) | (Op::Release, Verdict::Denied) => {
                Plan::Look
            }
            (Op::SpendUpTo, Verdict::Done) => Plan::Take(amount),
            (Op::Charge, Verdict::Done) => Plan::Late(cost),
            (Op::Refund | Op::Release, Verdict::Done) => Plan::Give(cost, spent),
            (Op::Reset, Verdict::Done) => Plan::Reset,
            (Op::RefundOnce, Verdict::Done) if marker?.may_be_absent => Plan::Give(cost, spent),
            (Op::RefundOnce, Verdict::Before) if marker?.may_be_live => Plan::Look,
            (Op::Settle, _) if !marker?.may_be_settled_as(verdict) => return None,
            (Op::Settle, Verdict::Done) if cost > 0 => Plan::Late(cost),
            (Op::Settle, Verdict::Done) => Plan::Give(-cost, spent),
            (Op::Settle, Verdict::Before | Verdict::Expired | Verdict::Unknown) => Plan::Look,
            _ => return None,
        })
    };
    let plans = question.charges.iter().map(plan).collect::<Option<Vec<_>>>();
    plans.ok_or_else(|| format!("{:?} at {now} cannot be {verdict:?}; marker: {marker:?}", question.op))
}

/// When the amounts that a question refunds were spent.
pub(super) fn spent(question: &Question<'_>, marker: Option<&MarkerLook>, now: i128) -> Option<i128> {
    match question.spent {
        Spent::Now => Some(now),
        Spent::At(moment) => Some(moment),
        Spent::Unknown => marker.and_then(|marker| marker.made).filter(|_| question.op == Op::Settle),
    }
}

/// Checks a grant or an uncovered amount.
pub(super) fn check_amount(
    question: &Question<'_>,
    verdict: &Verdict,
    amount: i128,
    findings: &[Finding],
) -> Result<(), String> {
    if *verdict == Verdict::OutsideWindows || findings.iter().any(Finding::is_adopted) {
        return Ok(());
    }
    let Range { least, most } = match question.op {
        Op::SpendUpTo => {
            let charged = question.charges.iter().zip(findings);
            let grant = |of: fn(Range) -> i128| {
                let most =
                    charged.clone().map(|(charge, finding)| of(finding.available()).min(charge.cost)).min();
                let quantum = question.charges.iter().map(|charge| charge.limit.quantum).max().unwrap_or(1);
                let most = most.unwrap_or(0).max(0);
                (most - most % quantum, quantum)
            };
            let ((least, quantum), (most, _)) = (grant(|range| range.least), grant(|range| range.most));
            let done = *verdict == Verdict::Done;
            if amount % quantum != 0 || done != (amount > 0) {
                return Err(format!("granted {amount} in steps of {quantum} as {verdict:?}"));
            }
            Range { least, most }
        }
        Op::Charge | Op::Settle => return check_uncovered(amount, findings),
        _ => return Ok(()),
    };
    if least <= amount && amount <= most {
        return Ok(());
    }
    Err(format!("{:?} at least {least} and at most {most} as its amount, replied {amount}", question.op))
}

/// The uncovered amount is the largest of all charges. A bucket that Redis may have forgotten has two of them.
fn check_uncovered(amount: i128, findings: &[Finding]) -> Result<(), String> {
    let (mut least, mut is_one) = (0, amount == 0);
    for finding in findings {
        if let Finding::Bucket { outcome, other, .. } = finding {
            let other = other.unwrap_or(outcome.uncovered);
            least = least.max(outcome.uncovered.least.min(other.least));
            is_one |= outcome.uncovered.contains(amount) || other.contains(amount);
        }
    }
    if is_one && least <= amount {
        Ok(())
    } else {
        Err(format!("expected {least} uncovered, replied {amount}"))
    }
}
