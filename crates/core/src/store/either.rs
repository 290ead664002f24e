//! One of two stores, and one of two futures.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::{
    Answer, Charges, Cost, HeldPermit, Inspect, Kept, Key, NamedLimit, Operation, Reply, Spent, Store,
    StoreError,
};

/// One of two stores, chosen at run time: one in this process, or one that several processes share.
///
/// A call costs one branch more than the store itself.
#[derive(Clone, Debug)]
pub enum EitherStore<E, S> {
    /// A store in this process.
    Embedded(E),
    /// A store that several processes share.
    Shared(S),
}

pin_project! {
    /// One of two futures. An `async` block would hold each of them twice.
    #[project = EitherProjection]
    #[derive(Debug)]
    pub enum EitherFuture<A, B> {
        #[doc(hidden)]
        First { #[pin] future: A },
        #[doc(hidden)]
        Second { #[pin] future: B },
    }
}

impl<A: Future, B: Future<Output = A::Output>> Future for EitherFuture<A, B> {
    type Output = A::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<A::Output> {
        match self.project() {
            EitherProjection::First { future } => future.poll(cx),
            EitherProjection::Second { future } => future.poll(cx),
        }
    }
}

/// Evaluates an expression with the store in use.
macro_rules! with {
    ($either:expr, $store:ident => $result:expr) => {
        match $either {
            EitherStore::Embedded($store) => $result,
            EitherStore::Shared($store) => $result,
        }
    };
}

impl<E: Store, S: Store> Store for EitherStore<E, S> {
    #[inline]
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        match self {
            Self::Embedded(store) => match store.call(operation, charges) {
                Answer::Now(reply) => Answer::Now(reply),
                Answer::Later(future) => Answer::Later(EitherFuture::First { future }),
            },
            Self::Shared(store) => match store.call(operation, charges) {
                Answer::Now(reply) => Answer::Now(reply),
                Answer::Later(future) => Answer::Later(EitherFuture::Second { future }),
            },
        }
    }

    fn is_shared(&self) -> bool {
        with!(self, store => store.is_shared())
    }

    fn timeout(&self) -> Option<Duration> {
        with!(self, store => store.timeout())
    }

    #[inline]
    fn spend_one(&self, key: Key<'_>, limit: &NamedLimit, cost: Cost) -> Option<Spent> {
        with!(self, store => store.spend_one(key, limit, cost))
    }
}

impl<E: Inspect, S: Inspect> Inspect for EitherStore<E, S> {
    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        with!(self, store => store.holders(charges).await)
    }

    async fn kept(&self, charges: &Charges<'_>) -> Result<Vec<Kept>, StoreError> {
        with!(self, store => store.kept(charges).await)
    }
}
