//! Limits: which rules a request falls under, what it owes, and what was decided.

mod due;
mod limits;
mod rule;

pub(crate) use limits::{Limits, Ruling};
pub use rule::Rule;
