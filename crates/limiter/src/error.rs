//! Errors of the limiter. A failing store is an error only if no failure policy can decide.

use spile_core::{
    ChargeError, CostError, Decision, KeyError, LimitName, PlanName, RefundIdError, ReservationTtlError,
    StoreError,
};

/// A mistake in the question. Nothing has been spent, and asking again does not help.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// No plan has that name.
    #[error("no plan is called `{0}`")]
    UnknownPlan(String),
    /// The key is not valid.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The id of a refund is not valid.
    #[error(transparent)]
    RefundId(#[from] RefundIdError),
    /// The time in which a reservation can be settled is too short or too long.
    #[error(transparent)]
    ReservationTtl(#[from] ReservationTtlError),
    /// The cost is above what any limit can hold.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The limit is a concurrency, and the question could not release a permit.
    #[error(
        "limit {0} is a concurrency: it takes a permit, which this question could not release; acquire one"
    )]
    NeedsPermit(LimitName),
    /// No limit of the plans is a concurrency, so that there is no permit to take.
    #[error("no limit of {0} is a concurrency, so that there is no permit to take")]
    NoConcurrency(String),
    /// The cost is above the capacity of a limit, or there are no charges, or too many.
    #[error(transparent)]
    Charge(#[from] ChargeError),
}

/// Why a refund or a reset failed. No failure policy can do these in the store's place.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreCallError {
    /// The question has a mistake.
    #[error(transparent)]
    Asked(#[from] LimiterError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why there is no permit, or no reservation. Nothing has been charged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The question has a mistake.
    #[error(transparent)]
    Asked(#[from] LimiterError),
    /// A limit denied it, or the store failed and the policy refuses requests.
    #[error("denied, retry after {:?}", .0.retry_after())]
    Denied(Box<Decision>),
}

impl AcquireError {
    /// The decision that denied. `None` if the question has a mistake.
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Denied(decision) => Some(decision),
            Self::Asked(_) => None,
        }
    }
}

/// Why a reservation is not settled.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The time to settle was over: it stays charged as it was reserved.
    #[error("the reservation has expired; it stays charged as it was reserved")]
    Expired,
    /// The store has no such reservation.
    #[error("the store has no such reservation: it was denied, failed, or expired more than an hour ago")]
    Unknown,
    /// The store did not answer: ask again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A plan that does not exist, and those that do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no plan is called `{plan}`{}", alternatives(.known))]
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

/// The names of the plans there are, for the end of a message.
fn alternatives(known: &[PlanName]) -> String {
    let known: Vec<_> = known.iter().map(|plan| format!("`{plan}`")).collect();
    if known.is_empty() { String::new() } else { format!("; there are {}", known.join(", ")) }
}
