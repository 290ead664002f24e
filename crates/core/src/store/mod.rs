//! The boundary: what every store promises, and how it says that it could not.

mod either;
mod outcome;

use std::sync::Arc;
use std::time::Duration;

pub use self::either::EitherStore;
pub use self::outcome::{
    ChargeOutcome, HeldPermit, Outcome, PartialOutcome, RefundOutcome, SettleOutcome, Spent,
};
use crate::{Charges, Cost, FailureReason, Key, NamedLimit, PermitId, RefundId, ReservationMarker};

/// Where buckets live. One call is one atomic step: every charge is spent, or none is.
///
/// `spile-testkit` holds the contract as a suite that any implementation can run.
pub trait Store: Send + Sync {
    /// Spends every charge, or none of them. See [`crate::spend`].
    fn spend(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Spends as [`spend`](Self::spend) does, if the store can answer without waiting. For a store in memory, a future
    /// would cost more than the answer. `None` means that nothing was spent and that `spend` has to be called.
    ///
    /// A store that wraps another should pass this on. Otherwise its callers wait for a future.
    #[inline]
    fn try_spend(&self, _charges: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        None
    }

    /// Spends one charge as [`try_spend`](Self::try_spend) does, without a chain: to make one costs as much as the answer. The
    /// limit covers the cost when it is full.
    #[inline]
    fn try_spend_one(&self, _key: Key<'_>, _limit: &NamedLimit, _cost: Cost) -> Option<Spent> {
        None
    }

    /// True if [`try_spend`](Self::try_spend) answers. Callers that would otherwise make the charges twice ask this first.
    #[inline]
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Answers as [`spend`](Self::spend) would, and writes nothing.
    ///
    /// An allowed peek shows the buckets as they are, not as they would be.
    fn peek(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Spends what is there, up to what is asked. See [`crate::spend_up_to`].
    fn spend_up_to(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<PartialOutcome, StoreError>> + Send;

    /// Takes every cost whether or not it is there, into debt if need be. See [`crate::charge`].
    fn charge(&self, charges: &Charges<'_>)
    -> impl Future<Output = Result<ChargeOutcome, StoreError>> + Send;

    /// Gives every cost back. See [`crate::refund`].
    fn refund(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Gives every cost back, once for each id. The refund and the note that it was given are one step. See
    /// [`crate::refund_once`]. After any error it can be asked again with the same id.
    fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> impl Future<Output = Result<RefundOutcome, StoreError>> + Send;

    /// Makes charges of one key that were reserved cost `actual` in the end, once for each reservation. The change and the note
    /// that it was made are one step. See [`crate::settle`]. After any error it can be asked again with the same marker.
    fn settle(
        &self,
        charges: &Charges<'_>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> impl Future<Output = Result<SettleOutcome, StoreError>> + Send;

    /// Takes, keeps or releases a permit of each concurrency of the chain, in one step with what the step does to the other
    /// charges. The outcome tells whether it did: see [`PermitStep`]. What is renewed or released is not counted: its places are
    /// told as free. After any error it can be asked again, except for
    /// [`PermitStep::Acquire`].
    fn permit(
        &self,
        charges: &Charges<'_>,
        id: &PermitId,
        step: PermitStep,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Who holds permits, for each charge: up to a thousand that end first. None for charges that take no permit.
    fn holders(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Vec<Vec<HeldPermit>>, StoreError>> + Send;

    /// Forgets the bucket of each charge, so that its key starts full, and frees all its permits. Costs do not matter.
    fn reset(&self, charges: &Charges<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What is done about a permit. A permit ends when its limit's hold time has passed since it was taken or last renewed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PermitStep {
    /// Spends every charge and takes a place of each concurrency for a permit whose id is new, or does nothing. Allowed as by
    /// [`Store::spend`].
    Acquire,
    /// Keeps a permit that is held, and takes one that is not if there is a place. Otherwise as `Acquire`.
    Retake,
    /// Keeps a permit for another hold time. Allowed if it is held in every concurrency of the chain; otherwise nothing is done.
    /// No tokens are spent.
    Renew,
    /// Ends a permit. Allowed if it was held in any concurrency of the chain. Charges that take no permit are refunded: they are
    /// left out if their tokens were used.
    Release,
}

/// A store in this process: it answers without waiting and never fails, so it can be asked without a future.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may have to wait for an answer",
    note = "only a store in this process can be asked without a future: call `allow(…).await`"
)]
pub trait EmbeddedStore: Store {
    /// Spends every charge, or none of them. See [`crate::spend`].
    fn spend_now(&self, charges: &Charges<'_>) -> Outcome;
}

impl<S: EmbeddedStore> EmbeddedStore for Arc<S> {
    #[inline]
    fn spend_now(&self, charges: &Charges<'_>) -> Outcome {
        (**self).spend_now(charges)
    }
}

impl<S: Store> Store for Arc<S> {
    fn spend(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        (**self).spend(charges)
    }

    #[inline]
    fn try_spend(&self, charges: &Charges<'_>) -> Option<Result<Outcome, StoreError>> {
        (**self).try_spend(charges)
    }

    #[inline]
    fn try_spend_one(&self, key: Key<'_>, limit: &NamedLimit, cost: Cost) -> Option<Spent> {
        (**self).try_spend_one(key, limit, cost)
    }

    #[inline]
    fn answers_at_once(&self) -> bool {
        (**self).answers_at_once()
    }

    fn peek(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        (**self).peek(charges)
    }

    fn spend_up_to(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<PartialOutcome, StoreError>> + Send {
        (**self).spend_up_to(charges)
    }

    fn charge(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<ChargeOutcome, StoreError>> + Send {
        (**self).charge(charges)
    }

    fn refund(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        (**self).refund(charges)
    }

    fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> impl Future<Output = Result<RefundOutcome, StoreError>> + Send {
        (**self).refund_once(charges, id)
    }

    fn settle(
        &self,
        charges: &Charges<'_>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> impl Future<Output = Result<SettleOutcome, StoreError>> + Send {
        (**self).settle(charges, marker, actual)
    }

    fn permit(
        &self,
        charges: &Charges<'_>,
        id: &PermitId,
        step: PermitStep,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        (**self).permit(charges, id, step)
    }

    fn holders(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Vec<Vec<HeldPermit>>, StoreError>> + Send {
        (**self).holders(charges)
    }

    fn reset(&self, charges: &Charges<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        (**self).reset(charges)
    }
}

/// Why a store could not answer. Being over a limit is a [`crate::Decision`], not an error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store could not be reached, or refused.
    #[error("store unavailable: {message}")]
    Unavailable {
        /// What the store or the network said.
        message: Arc<str>,
        /// Whether the request had been sent when it failed.
        may_have_run: bool,
    },
    /// No answer came in time.
    #[error("store gave no answer within {0:?}")]
    TimedOut(Duration),
    /// An answer came that cannot be read.
    #[error("store gave an answer that cannot be read: {0}")]
    BadResponse(Arc<str>),
    /// The stored state has a type that could not be read or repaired.
    #[error("stored bucket has a type that cannot be read: {0}")]
    BadTypes(Arc<str>),
    /// The breaker is open after repeated failures.
    #[error("store is not asked while its breaker is open")]
    BreakerOpen,
    /// Too many requests are already waiting.
    #[error("store is not asked while {0} requests wait for it")]
    Overloaded(usize),
}

impl StoreError {
    /// True if the step may have happened although it failed. Trying again could then charge twice.
    pub const fn may_have_run(&self) -> bool {
        match self {
            Self::Unavailable { may_have_run, .. } => *may_have_run,
            Self::TimedOut(_) | Self::BadResponse(_) => true,
            Self::BadTypes(_) | Self::BreakerOpen | Self::Overloaded(_) => false,
        }
    }

    /// False if nothing was sent to the store: its breaker is open, or too many calls wait for it already.
    pub const fn was_asked(&self) -> bool {
        !matches!(self, Self::BreakerOpen | Self::Overloaded(_))
    }

    /// The reason, as metrics count it.
    pub const fn reason(&self) -> FailureReason {
        match self {
            Self::Unavailable { .. } => FailureReason::RedisError,
            Self::TimedOut(_) => FailureReason::Timeout,
            Self::BadResponse(_) => FailureReason::BadResponse,
            Self::BadTypes(_) => FailureReason::BadTypes,
            Self::BreakerOpen => FailureReason::BreakerOpen,
            Self::Overloaded(_) => FailureReason::Overloaded,
        }
    }
}
