//! Decisions about partial spends and late charges.

use spile_core::{Amount, Charge, Charges, Cost, Decision, DecisionSource, PartialOutcome};

/// The decision about a partial spend.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartialDecision {
    /// The amount taken; zero if less than a quantum was available.
    pub granted: Amount,
    /// The limits after it.
    pub decision: Decision,
}

/// The decision about a late charge.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChargeDecision {
    /// The amount beyond the debt of a limit, which was not charged; the largest of any limit.
    pub uncovered: Amount,
    /// The limits after it.
    pub decision: Decision,
}

impl PartialDecision {
    /// The decision that the outcome of a store amounts to.
    pub(crate) fn of(charges: &Charges<'_>, outcome: PartialOutcome, source: DecisionSource) -> Self {
        let PartialOutcome { granted, outcome } = outcome;
        // A caller that got nothing waits for the first quantum, not for all that it asked for.
        let decision = match granted {
            Amount::ZERO => Decision::from_outcome(&first_quantum(charges), &outcome, source),
            _ => Decision::from_outcome(charges, &outcome, source),
        };
        Self { granted, decision }
    }

    /// Applies shadow mode: the decision passes. The grant stays what the limits had.
    pub(crate) fn shadowed(self) -> Self {
        Self { decision: self.decision.shadowed(), ..self }
    }
}

/// The charges at one quantum each, which every limit can cover.
fn first_quantum<'k>(charges: &Charges<'k>) -> Charges<'k> {
    let one = |charge: &Charge<'k>| {
        let cost = Cost::saturating(charge.limit().limit().quantum());
        Charge::late(charge.key(), charge.limit().clone(), cost)
    };
    Charges::distinct(charges.iter().map(one)).unwrap_or_else(|_| charges.clone())
}
