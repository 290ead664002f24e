//! What a partial spend took.

use spile_core::{Charge, Charges, Cost, Decision, PartialOutcome, Source};

/// What a partial spend took.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartialDecision {
    /// Tokens taken; zero where there was not a whole one.
    pub tokens: u32,
    /// How the limits stand after it.
    pub decision: Decision,
}

impl PartialDecision {
    /// What a store's grant amounts to.
    pub(crate) fn of(charges: &Charges<'_>, grant: PartialOutcome, source: Source) -> Self {
        let PartialOutcome { tokens, outcome } = grant;
        // A caller who got nothing wants to know when there is a token, not when there are all of them.
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
