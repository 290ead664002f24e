//! Requests that are traced, whichever listener they come by.

use futures_util::FutureExt;
use futures_util::future::Either;
use http::{Request, Response};
use spile_listener::{Answer, ClientBody, Origin};
use spile_observe::trace::{TraceContext, Tracer, note};

/// Answers requests, each as a span if there is a tracer.
#[derive(Clone)]
pub(crate) struct Traced<A> {
    pub(crate) answer: A,
    pub(crate) tracer: Option<Tracer>,
}

impl<A: Answer> Answer for Traced<A> {
    const HTTP2_ONLY: bool = A::HTTP2_ONLY;

    type Body = A::Body;

    fn answer(
        self,
        origin: Origin,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Response<A::Body>> + Send + 'static {
        let Some(tracer) = self.tracer else { return Either::Left(self.answer.answer(origin, request)) };
        let parent = request.headers().get("traceparent");
        let parent = parent.and_then(|parent| TraceContext::parse(parent.to_str().ok()?));
        let answered = self.answer.answer(origin, request).inspect(|response| {
            note("http.response.status_code", || response.status().as_str().to_owned());
        });
        // Boxed, so that requests without a trace need not carry it around.
        Either::Right(Box::pin(async move { tracer.trace("http request", parent, answered).await }))
    }
}
