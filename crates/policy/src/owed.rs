//! What a request owes.

use crate::chain::Chain;
use crate::refusal::Refusal;

/// What a request owes, and what becomes of it once it has paid.
#[derive(Clone, Debug, Default)]
pub struct Owed {
    /// What is charged, all of it or nothing. `None` if no limit applies.
    pub enforced: Option<Chain>,
    /// What rules that only watch would charge, each by itself: none of them holds back another's charge.
    pub watched: Vec<Chain>,
    /// Why the request is refused even if `enforced` lets it pass.
    pub refusal: Option<Refusal>,
}

impl Owed {
    /// Nothing is charged, and the request is refused.
    pub(crate) fn refused(why: Refusal) -> Self {
        Self { refusal: Some(why), ..Self::default() }
    }
}
