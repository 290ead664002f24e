//! Limits: what the policy says that a request owes, and what was decided.

mod limits;

pub(crate) use limits::{Limits, Ruling};
