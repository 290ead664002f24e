//! The service that the layer makes of another.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::request::Parts;
use http::{Request, Response};
use spile_core::Store;
use tower_service::Service;

use crate::account::Account;
use crate::body::ReplyBody;
use crate::future::{Deciding, ResponseFuture};
use crate::refusal::Cause;
use crate::shared::{Shared, Undue};

/// A service whose requests are limited. Made by [`RateLimitLayer`](crate::RateLimitLayer).
pub struct RateLimit<Svc, S> {
    inner: Svc,
    shared: Arc<Shared<S>>,
}

impl<Svc, S> RateLimit<Svc, S> {
    pub(crate) const fn new(inner: Svc, shared: Arc<Shared<S>>) -> Self {
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
        match Account::of(&parts, Arc::clone(&self.shared)) {
            Ok(account) if account.dues.list.is_empty() => self.pass(parts, body),
            Ok(account) => self.decide(account, parts, body),
            Err(_) if self.shared.shadow => self.pass(parts, body),
            Err(Undue::NoKey) => self.refuse(Cause::NoKey, &parts),
            Err(Undue::Invalid(error)) => self.refuse(Cause::Invalid(&error), &parts),
        }
    }
}

impl<Svc, S: Store + 'static> RateLimit<Svc, S> {
    fn pass<B>(&mut self, parts: Parts, body: B) -> ResponseFuture<Svc, S, B>
    where
        Svc: Service<Request<B>>,
    {
        ResponseFuture::passing(self.inner.call(Request::from_parts(parts, body)), None)
    }

    fn refuse<B>(&self, cause: Cause<'_>, parts: &Parts) -> ResponseFuture<Svc, S, B>
    where
        Svc: Service<Request<B>>,
    {
        ResponseFuture::refused(self.shared.refuse(cause, parts, self.shared.clock.now()))
    }

    // Inlined with what it calls, or the request would be copied at each step.
    #[inline]
    fn decide<B>(&mut self, account: Arc<Account<S>>, parts: Parts, body: B) -> ResponseFuture<Svc, S, B>
    where
        Svc: Service<Request<B>> + Clone,
    {
        let mut verdict = Box::pin(account.decide());
        // A store in memory answers at once. Then the service that is ready can be called right here, and need
        // not be cloned. Otherwise the task is woken through the second poll, which is the task's own.
        match verdict.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(verdict) => ResponseFuture::decided(verdict, &mut self.inner, parts, body),
            Poll::Pending => {
                // The clone has not been polled ready; the service that has been must be the one to be called.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(Deciding { verdict, held: Some((ready, parts, body)) })
            }
        }
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
