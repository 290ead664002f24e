//! The future of a limited request: waiting for a decision, being served, or refused.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use spile_core::{Decision, Store};
use spile_limiter::Ask;
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
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

/// A request that waits for its decision, and the service that is ready for it.
pub(crate) struct Deciding<Svc, S, B> {
    pub(crate) verdict: Pin<Box<dyn Future<Output = LateDecision<S>> + Send>>,
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

    /// The future of a request after its decision: it goes to the service, or is refused.
    #[inline]
    pub(crate) fn decided(
        shared: &Arc<LayerState<S>>,
        decision: Decision,
        chain: Chain,
        ready: &mut Svc,
        mut parts: Parts,
        body: B,
    ) -> Self
    where
        S: Store + 'static,
    {
        let now = shared.clock.now();
        if !decision.allowed() {
            return Self::refused(shared.refuse(Cause::Denied(&decision), &parts, now));
        }
        let told = shared.fields.render(&decision, now);
        Admission::new(decision, chain, Arc::clone(shared)).leave_in(&mut parts.extensions);
        Self::passing(ready.call(Request::from_parts(parts, body)), Some(told))
    }
}

/// A decision that had to be waited for, with what it was about.
pub(crate) struct LateDecision<S> {
    shared: Arc<LayerState<S>>,
    chain: Chain,
    decision: Decision,
}

impl<S: Store> LateDecision<S> {
    /// Asks the limiter. A failing store is not an error: the failure policy turns it into a decision.
    pub(crate) async fn of(shared: Arc<LayerState<S>>, chain: Chain) -> Self {
        let decision = shared.limiter.allow_charges(Ask::from(&chain)).await;
        Self { shared, chain, decision }
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
                ResponseStateProj::Refused { response } => {
                    let response = response.take().expect("a future is not polled after it is ready");
                    return Poll::Ready(Ok(response.map(R::from_bytes)));
                }
            };
            this.state.set(next);
        }
    }
}

impl<Svc, S, B> Deciding<Svc, S, B>
where
    Svc: Service<Request<B>>,
    S: Store + 'static,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ResponseState<Svc, S, B, Svc::Future>> {
        let LateDecision { shared, chain, decision } = ready!(self.verdict.as_mut().poll(cx));
        let (mut ready, parts, body) = self.held.take().expect("a decision is made once");
        let decided = ResponseFuture::decided(&shared, decision, chain, &mut ready, parts, body);
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
