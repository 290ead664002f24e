//! The service that the layer wraps around another.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use spile_core::Store;
use spile_limiter::Ask;
use spile_policy::Chain;
use tower_service::Service;

use super::future::{Deciding, LateDecision, PendingVerdict, ResponseFuture};
use super::state::{LayerState, Unchargeable};
use crate::response::{Cause, ReplyBody};

/// A service whose requests are limited. Made by [`RateLimitLayer`](crate::RateLimitLayer).
pub struct RateLimit<Svc, S> {
    inner: Svc,
    shared: Arc<LayerState<S>>,
}

impl<Svc, S> RateLimit<Svc, S> {
    pub(crate) const fn new(inner: Svc, shared: Arc<LayerState<S>>) -> Self {
        Self { inner, shared }
    }
}

impl<Svc, S, B, R> Service<Request<B>> for RateLimit<Svc, S>
where
    Svc: Service<Request<B>, Response = Response<R>> + Clone,
    R: ReplyBody,
    S: Store + 'static,
{
    type Response = Response<R>;
    type Error = Svc::Error;
    type Future = ResponseFuture<Svc, S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Svc::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        if self.shared.skips(&parts) {
            return self.pass(parts, body);
        }
        self.shared.check_peer(&parts);
        let mut chain = self.shared.chain(&parts);
        match self.shared.owe(&parts, &mut chain) {
            Ok(()) if chain.is_empty() => self.pass(parts, body),
            Ok(()) => self.allow(chain, parts, body),
            Err(why) => self.give_up(&why, parts, body),
        }
    }
}

impl<Svc, S: Store + 'static> RateLimit<Svc, S> {
    /// Asks the limiter. A store in memory answers without waiting: then the service that is ready is called right here, and
    /// is not cloned. The charges are made once in either case. Permits are always waited for: they cost more than that.
    // Inlined, because otherwise the request would be copied at each step.
    #[inline]
    fn allow<B>(&mut self, chain: Chain, parts: Parts, body: B) -> ResponseFuture<Svc, S, B>
    where
        Svc: Service<Request<B>> + Clone,
    {
        if !self.shared.limiter.store().is_shared()
            && let Some(ruling) = self.shared.limiter.decide_now(&Ask::from(&chain))
        {
            return ResponseFuture::decided(&self.shared, ruling, chain, &mut self.inner, parts, body);
        }
        self.wait(chain, parts, body)
    }

    /// Waits for a store that does not answer without waiting, or for a permit.
    #[cold]
    fn wait<B>(&mut self, chain: Chain, parts: Parts, body: B) -> ResponseFuture<Svc, S, B>
    where
        Svc: Service<Request<B>> + Clone,
    {
        let shared = Arc::clone(&self.shared);
        let verdict: PendingVerdict<S> = Box::pin(LateDecision::of(shared, chain));
        // The clone has not been polled ready. The service that has been must be called.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        ResponseFuture::deciding(Deciding { verdict, held: Some((ready, parts, body)) })
    }

    fn pass<B>(&mut self, parts: Parts, body: B) -> ResponseFuture<Svc, S, B>
    where
        Svc: Service<Request<B>>,
    {
        ResponseFuture::passing(self.inner.call(Request::from_parts(parts, body)), None)
    }

    /// Answers a request that cannot be charged, or lets it pass in shadow mode.
    #[cold]
    fn give_up<B>(&mut self, why: &Unchargeable, parts: Parts, body: B) -> ResponseFuture<Svc, S, B>
    where
        Svc: Service<Request<B>>,
    {
        if self.shared.shadow {
            return self.pass(parts, body);
        }
        let cause = match why {
            Unchargeable::NoKey => Cause::NoKey,
            Unchargeable::Invalid(error) => Cause::Invalid(error),
        };
        ResponseFuture::refused(self.shared.refuse(cause, &parts, self.shared.clock.now()))
    }
}

impl<Svc: Clone, S> Clone for RateLimit<Svc, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<Svc, S> fmt::Debug for RateLimit<Svc, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("shared", &self.shared).finish_non_exhaustive()
    }
}
