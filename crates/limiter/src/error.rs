//! What is wrong with a question. A failing store is not: it becomes a decision.

use std::fmt;

use spile_core::{ChargeError, CostError, KeyError, PlanName, RefundIdError, StoreError};

/// Why a question cannot be answered, now or later. Nothing has been spent.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// No plan has that name.
    #[error("no plan is called `{0}`")]
    UnknownPlan(String),
    /// The key cannot be one.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The id of a refund cannot be one.
    #[error(transparent)]
    RefundId(#[from] RefundIdError),
    /// The cost is above what any limit holds.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The cost is above one limit's capacity, or the chain is not one.
    #[error(transparent)]
    Charge(#[from] ChargeError),
}

/// Why something could not be given back or reset: no policy can do that in the store's place.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreFailed {
    /// The question was wrong.
    #[error(transparent)]
    Asked(#[from] LimiterError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A plan that does not exist, and those that do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownPlan {
    pub(crate) plan: String,
    pub(crate) known: Vec<PlanName>,
}

impl UnknownPlan {
    /// The name that no plan has.
    pub fn plan(&self) -> &str {
        &self.plan
    }

    /// The plans that there are.
    pub fn known(&self) -> &[PlanName] {
        &self.known
    }
}

impl std::error::Error for UnknownPlan {}

impl fmt::Display for UnknownPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no plan is called `{}`", self.plan)?;
        if self.known.is_empty() {
            return Ok(());
        }
        let known: Vec<_> = self.known.iter().map(|plan| format!("`{plan}`")).collect();
        write!(f, "; there are {}", known.join(", "))
    }
}
