//! What a partial spend took, and what a late charge did.

use spile_core::{Charge, Charges, Cost, Decision, DecisionSource, PartialOutcome};

/// What a partial spend took.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartialDecision {
    /// Tokens taken; zero if there was not a whole one.
    pub tokens: u32,
    /// The limits after it.
    pub decision: Decision,
}

/// What a late charge did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChargeDecision {
    /// Tokens beyond the debt of a limit, which were not charged; the most of any limit.
    pub uncovered: u64,
    /// The limits after it.
    pub decision: Decision,
}

impl ChargeDecision {
    /// A late charge of which so many tokens were not charged.
    pub const fn new(uncovered: u64, decision: Decision) -> Self {
        Self { uncovered, decision }
    }
}

impl PartialDecision {
    /// The decision that the outcome of a store amounts to.
    pub(crate) fn of(charges: &Charges<'_>, outcome: PartialOutcome, source: DecisionSource) -> Self {
        let PartialOutcome { tokens, outcome } = outcome;
        // A caller that got no token wants to know when there is one, not when all of them are there.
        let decision = match tokens {
            0 => Decision::from_outcome(&first_token(charges), &outcome, source),
            _ => Decision::from_outcome(charges, &outcome, source),
        };
        Self { tokens, decision }
    }
}

/// The same charges at one token each, which every limit can cover.
fn first_token<'k>(charges: &Charges<'k>) -> Charges<'k> {
    let one = |charge: &Charge<'k>| Charge::new(charge.key(), charge.limit().clone(), Cost::ONE);
    let ones: Result<Vec<_>, _> = charges.iter().map(one).collect();
    ones.and_then(Charges::new).unwrap_or_else(|_| charges.clone())
}
