//! What is wrong with a question. A failing store is not: it becomes a decision.

use spile_core::{ChargeError, CostError, KeyError, RefundIdError, StoreError};

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
