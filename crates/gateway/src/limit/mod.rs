//! Limits: which rules a request falls under, what it owes, and what was decided.

mod due;
mod limits;
mod rule;
mod rulebook;

pub(crate) use limits::{Limits, Ruling, Undecided};
pub use rule::Rule;
pub use rulebook::{Rulebook, Rules};
