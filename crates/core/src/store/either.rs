//! One of two stores, chosen at run time.

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
    enum EitherFuture<E, S> {
        Embedded { #[pin] future: E },
        Shared { #[pin] future: S },
    }
}

impl<E: Future, S: Future<Output = E::Output>> Future for EitherFuture<E, S> {
    type Output = E::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<E::Output> {
        match self.project() {
            EitherProjection::Embedded { future } => future.poll(cx),
            EitherProjection::Shared { future } => future.poll(cx),
        }
    }
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
                Answer::Later(future) => Answer::Later(EitherFuture::Embedded { future }),
            },
            Self::Shared(store) => match store.call(operation, charges) {
                Answer::Now(reply) => Answer::Now(reply),
                Answer::Later(future) => Answer::Later(EitherFuture::Shared { future }),
            },
        }
    }

    fn is_shared(&self) -> bool {
        match self {
            Self::Embedded(store) => store.is_shared(),
            Self::Shared(store) => store.is_shared(),
        }
    }

    fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Embedded(store) => store.timeout(),
            Self::Shared(store) => store.timeout(),
        }
    }

    #[inline]
    fn spend_one(&self, key: Key<'_>, limit: &NamedLimit, cost: Cost) -> Option<Spent> {
        match self {
            Self::Embedded(store) => store.spend_one(key, limit, cost),
            Self::Shared(store) => store.spend_one(key, limit, cost),
        }
    }
}

impl<E: Inspect, S: Inspect> Inspect for EitherStore<E, S> {
    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        match self {
            Self::Embedded(store) => store.holders(charges).await,
            Self::Shared(store) => store.holders(charges).await,
        }
    }

    async fn kept(&self, charges: &Charges<'_>) -> Result<Vec<Kept>, StoreError> {
        match self {
            Self::Embedded(store) => store.kept(charges).await,
            Self::Shared(store) => store.kept(charges).await,
        }
    }
}
