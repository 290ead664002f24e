//! A request on its way: being decided about, being served, or refused.

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
use super::state::Shared;
use crate::response::{Cause, Rendered, ReplyBody};

pin_project! {
    /// The response of a limited service.
    pub struct ResponseFuture<Svc, S, B>
    where
        Svc: Service<Request<B>>,
    {
        #[pin]
        state: State<Svc, S, B, Svc::Future>,
    }
}

pin_project! {
    // What is rare is boxed: most requests pass, and their future is moved about.
    #[project = StateProj]
    enum State<Svc, S, B, F> {
        Deciding { deciding: Box<Deciding<Svc, S, B>> },
        Passing { #[pin] inner: F, told: Option<Rendered> },
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

/// A request whose decision the store still owes, and the service that is ready for it.
pub(crate) struct Deciding<Svc, S, B> {
    pub(crate) verdict: Pin<Box<dyn Future<Output = Verdict<S>> + Send>>,
    /// Taken when the decision is there.
    pub(crate) held: Option<(Svc, Parts, B)>,
}

impl<Svc, S, B> ResponseFuture<Svc, S, B>
where
    Svc: Service<Request<B>>,
{
    pub(crate) fn deciding(deciding: Deciding<Svc, S, B>) -> Self {
        Self { state: State::Deciding { deciding: Box::new(deciding) } }
    }

    pub(crate) const fn passing(inner: Svc::Future, told: Option<Rendered>) -> Self {
        Self { state: State::Passing { inner, told } }
    }

    pub(crate) fn refused(response: Response<Bytes>) -> Self {
        Self { state: State::Refused { response: Some(Box::new(response)) } }
    }

    /// The way of a request that was decided about: to the service, or back.
    #[inline]
    pub(crate) fn decided(
        shared: &Arc<Shared<S>>,
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

/// What the limiter said once the store had answered.
pub(crate) struct Verdict<S> {
    shared: Arc<Shared<S>>,
    chain: Chain,
    decision: Decision,
}

impl<S: Store> Verdict<S> {
    /// Asks the limiter, and hands back what it was asked about. A failing store is not an error: the failure policy
    /// makes it a decision.
    pub(crate) async fn of(shared: Arc<Shared<S>>, chain: Chain) -> Self {
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
                StateProj::Deciding { deciding } => ready!(deciding.poll(cx)),
                StateProj::Passing { inner, told } => {
                    let mut response = ready!(inner.poll(cx))?;
                    if let Some(told) = told.take() {
                        told.write(response.headers_mut());
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProj::Refused { response } => {
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
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<State<Svc, S, B, Svc::Future>> {
        let Verdict { shared, chain, decision } = ready!(self.verdict.as_mut().poll(cx));
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
