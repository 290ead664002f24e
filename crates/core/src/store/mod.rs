//! The boundary to stores: the contract of every store, and typed calls on top of it.

mod either;
mod error;
mod ext;
mod inspect;
mod operation;
mod reply;

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use self::either::EitherFuture;
pub use self::either::EitherStore;
pub use self::error::StoreError;
pub use self::ext::StoreExt;
pub use self::inspect::{Inspect, Kept};
pub use self::operation::{MARKER_TIME, Operation, PermitStep, SpendTime};
pub use self::reply::{
    ChargeOutcome, HeldPermit, Outcome, PartialOutcome, RefundOutcome, Reply, SettleOutcome, Spent, Verdict,
};
use crate::{Charges, Cost, Key, NamedLimit};

/// Where buckets live. One call is one atomic step: every charge is spent, or none is.
///
/// A store implements one method; [`StoreExt`] adds a typed one for each operation. [`decide`](crate::decide) runs an operation on
/// buckets that a store has read. `spile-testkit` has the contract as a test suite for any implementation.
pub trait Store: Send + Sync {
    /// Runs one operation.
    ///
    /// A store in memory answers [`Now`](Answer::Now). Any other store answers [`Later`](Answer::Later), with a future that does
    /// nothing until it is polled.
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a>;

    /// True if other instances see the same buckets.
    fn is_shared(&self) -> bool;

    /// The time after which a call fails by itself. A limiter waits a little longer, so that it gets to know why. `None` if no call
    /// does.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Spends one charge without a list of charges, which would cost as much as the decision. For stores in memory. The caller
    /// guarantees that the limit is not a concurrency and that a full bucket covers the cost. `None` means that nothing was spent
    /// and that [`call`](Self::call) has to be used.
    fn spend_one(&self, _key: Key<'_>, _limit: &NamedLimit, _cost: Cost) -> Option<Spent> {
        None
    }
}

/// The answer of a store.
#[derive(Debug)]
pub enum Answer<F> {
    /// The operation has run.
    Now(Result<Reply, StoreError>),
    /// The operation runs when the future is polled.
    Later(F),
}

impl<F: Future<Output = Result<Reply, StoreError>>> IntoFuture for Answer<F> {
    type Output = Result<Reply, StoreError>;
    type IntoFuture = EitherFuture<Ready<Self::Output>, F>;

    #[inline]
    fn into_future(self) -> Self::IntoFuture {
        match self {
            Self::Now(reply) => EitherFuture::First { future: ready(reply) },
            Self::Later(future) => EitherFuture::Second { future },
        }
    }
}

/// A store in this process, which always answers [`Now`](Answer::Now) and never fails, so that callers need no future.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may have to wait for an answer",
    note = "only a store in this process can be asked without a future: call `allow(…).await`"
)]
pub trait EmbeddedStore: Store {}

impl<S: EmbeddedStore> EmbeddedStore for Arc<S> {}

impl<S: Store> Store for Arc<S> {
    #[inline]
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        (**self).call(operation, charges)
    }

    fn is_shared(&self) -> bool {
        (**self).is_shared()
    }

    fn timeout(&self) -> Option<Duration> {
        (**self).timeout()
    }

    #[inline]
    fn spend_one(&self, key: Key<'_>, limit: &NamedLimit, cost: Cost) -> Option<Spent> {
        (**self).spend_one(key, limit, cost)
    }
}
