//! A rule: which plans a question stands under, what it costs, and what happens when the store fails.

use smol_str::SmolStr;
use spile_core::{Cost, FailurePolicy, PlanName};

/// A rule that callers ask by its id.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) id: SmolStr,
    pub(crate) plans: Vec<PlanName>,
    pub(crate) cost: Cost,
    /// Overrides the store's policy.
    pub(crate) on_failure: Option<FailurePolicy>,
    /// Decides and counts, but never blocks.
    pub(crate) shadow: bool,
}
