//! The future of a limited request: waiting for a decision, being served, or refused.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use spile_core::Store;
use spile_limiter::{EnforcedDecision, Permit, Ruling};
use spile_policy::Chain;
use tower_service::Service;

use super::admission::Admission;
use super::state::LayerState;
use crate::response::{Cause, Rendered, ReplyBody};

pin_project! {
    /// The response of a limited service.
    pub struct ResponseFuture<Svc, S, B>
    where
        Svc: Service<Request<B>>,
    {
        #[pin]
        state: ResponseState<Svc, S, B, Svc::Future>,
    }
}

pin_project! {
    // The rare states are boxed: most requests pass, and a small future is cheaper to move.
    #[project = ResponseStateProj]
    enum ResponseState<Svc, S, B, F> {
        Deciding { deciding: Box<Deciding<Svc, S, B>> },
        Passing { #[pin] inner: F, told: Option<Rendered> },
        Holding { held: Pin<Box<HeldCall<F>>> },
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

pin_project! {
    /// A request that is being served while a permit is held. A panic of the service or a drop ends the permit with this.
    struct HeldCall<F> {
        #[pin]
        inner: F,
        told: Option<Rendered>,
        permit: Option<Arc<Permit>>,
    }
}

/// A decision that is waited for.
pub(crate) type PendingVerdict<S> = Pin<Box<dyn Future<Output = LateDecision<S>> + Send>>;

/// A request that waits for its decision, and the service that is ready for it.
pub(crate) struct Deciding<Svc, S, B> {
    pub(crate) verdict: PendingVerdict<S>,
    /// `None` once the decision is there.
    pub(crate) held: Option<(Svc, Parts, B)>,
}

impl<Svc, S, B> ResponseFuture<Svc, S, B>
where
    Svc: Service<Request<B>>,
{
    pub(crate) fn deciding(deciding: Deciding<Svc, S, B>) -> Self {
        Self { state: ResponseState::Deciding { deciding: Box::new(deciding) } }
    }

    pub(crate) const fn passing(inner: Svc::Future, told: Option<Rendered>) -> Self {
        Self { state: ResponseState::Passing { inner, told } }
    }

    pub(crate) fn refused(response: Response<Bytes>) -> Self {
        Self { state: ResponseState::Refused { response: Some(Box::new(response)) } }
    }

    fn holding(inner: Svc::Future, told: Rendered, permit: Arc<Permit>) -> Self {
        let held = Box::pin(HeldCall { inner, told: Some(told), permit: Some(permit) });
        Self { state: ResponseState::Holding { held } }
    }

    /// The future of a request after its decision: it goes to the service, or is refused.
    #[inline]
    pub(crate) fn decided(
        shared: &Arc<LayerState<S>>,
        Ruling { enforced, permit, .. }: Ruling,
        chain: Chain,
        ready: &mut Svc,
        mut parts: Parts,
        body: B,
    ) -> Self
    where
        S: Store + 'static,
    {
        let EnforcedDecision::Decided(decision) = enforced else {
            return Self::passing(ready.call(Request::from_parts(parts, body)), None);
        };
        let now = shared.clock.now();
        if !decision.allowed() {
            return Self::refused(shared.refuse(Cause::Denied(&decision), &parts, now));
        }
        let told = shared.fields.render(&decision, now);
        let permit = permit.map(Arc::from);
        let admission = Admission::new(decision, chain, Arc::clone(shared), permit.as_ref());
        admission.leave_in(&mut parts.extensions);
        let inner = ready.call(Request::from_parts(parts, body));
        match permit {
            None => Self::passing(inner, Some(told)),
            Some(permit) => Self::holding(inner, told, permit),
        }
    }
}

/// A decision that had to be waited for, with what it was about.
pub(crate) struct LateDecision<S> {
    shared: Arc<LayerState<S>>,
    chain: Chain,
    ruling: Ruling,
}

impl<S: Store + 'static> LateDecision<S> {
    /// Asks the limiter. A failing store is not an error: the failure policy turns it into a decision.
    pub(crate) async fn of(shared: Arc<LayerState<S>>, chain: Chain) -> Self {
        let ruling = shared.limiter.decide(&chain).await;
        Self { shared, chain, ruling }
    }
}

impl<Svc, S, B, R> Future for ResponseFuture<Svc, S, B>
where
    Svc: Service<Request<B>, Response = Response<R>>,
    R: ReplyBody,
    S: Store + 'static,
{
    type Output = Result<Response<R>, Svc::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                ResponseStateProj::Deciding { deciding } => ready!(deciding.poll(cx)),
                ResponseStateProj::Passing { inner, told } => {
                    let mut response = ready!(inner.poll(cx))?;
                    if let Some(told) = told.take() {
                        told.write(response.headers_mut());
                    }
                    return Poll::Ready(Ok(response));
                }
                ResponseStateProj::Holding { held } => return held.as_mut().poll(cx),
                ResponseStateProj::Refused { response } => {
                    let response = response.take().expect("a future is not polled after it is ready");
                    return Poll::Ready(Ok(response.map(R::from_bytes)));
                }
            };
            this.state.set(next);
        }
    }
}

impl<F, R, E> Future for HeldCall<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: ReplyBody,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(cx));
        let (permit, told) = (this.permit.take(), this.told.take());
        let mut response = result?;
        if let Some(told) = told {
            told.write(response.headers_mut());
        }
        Poll::Ready(Ok(match permit {
            Some(permit) => response.map(|body| body.holding(permit)),
            None => response,
        }))
    }
}

impl<Svc, S, B> Deciding<Svc, S, B>
where
    Svc: Service<Request<B>>,
    S: Store + 'static,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ResponseState<Svc, S, B, Svc::Future>> {
        let LateDecision { shared, chain, ruling } = ready!(self.verdict.as_mut().poll(cx));
        let (mut ready, parts, body) = self.held.take().expect("a decision is made once");
        let decided = ResponseFuture::decided(&shared, ruling, chain, &mut ready, parts, body);
        Poll::Ready(decided.state)
    }
}

impl<Svc, S, B> fmt::Debug for ResponseFuture<Svc, S, B>
where
    Svc: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
