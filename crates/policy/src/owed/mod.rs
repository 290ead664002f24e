//! What a request owes.

mod chain;
mod refusal;

pub use self::chain::{BucketCharge, Chain};
pub use self::refusal::PolicyRefusal;

/// What a request owes, and whether it is refused even if it can pay.
#[derive(Clone, Debug, Default)]
pub struct Owed {
    /// The charges, all or nothing. `None` if no limit applies.
    pub enforced: Option<Chain>,
    /// The charges of rules in shadow mode, asked if `enforced` allows. Each is independent of the others.
    pub shadow: Vec<Chain>,
    /// Why the request is refused even if `enforced` allows it.
    pub refusal: Option<PolicyRefusal>,
}

impl Owed {
    /// Nothing is charged, and the request is refused.
    pub(crate) fn refused(why: PolicyRefusal) -> Self {
        Self { refusal: Some(why), ..Self::default() }
    }
}
