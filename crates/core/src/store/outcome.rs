//! What a store answers: how each bucket of the chain stands after the step.

use crate::{Bucket, Few, Micros};

/// What one atomic step did, and how the buckets stand after it, in the order of the charges.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// Whether every charge was covered.
    pub allowed: bool,
    /// The store's own time when it decided.
    pub at: Micros,
    /// One bucket per charge. A key without state shows as a full bucket written at `at`.
    pub buckets: Few<Bucket>,
}

/// What a partial spend took.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartialOutcome {
    /// Whole tokens taken from every bucket of the chain; zero means that nothing was written.
    pub tokens: u32,
    /// How the buckets stand after it. Allowed where anything was granted.
    pub outcome: Outcome,
}

/// What a refund with an id came to.
#[derive(Clone, Debug, PartialEq)]
pub struct RefundOutcome {
    /// Whether it was given now. False if it had been before: then nothing has changed.
    pub given: bool,
    /// How the buckets stand after it.
    pub outcome: Outcome,
}
