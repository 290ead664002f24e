//! Traces the requests of any HTTP listener.

use futures_util::FutureExt;
use futures_util::future::Either;
use http::{Request, Response};
use spile_listener::{ClientBody, HttpHandler, RequestOrigin};
use spile_observe::trace::{TraceContext, Tracer, note};

/// Answers requests, each as a span if there is a tracer.
#[derive(Clone)]
pub(crate) struct Traced<A> {
    pub(crate) answer: A,
    pub(crate) tracer: Option<Tracer>,
}

impl<A: HttpHandler> HttpHandler for Traced<A> {
    const HTTP2_ONLY: bool = A::HTTP2_ONLY;

    type Body = A::Body;

    fn handle(
        self,
        origin: RequestOrigin,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Response<A::Body>> + Send + 'static {
        let Some(tracer) = self.tracer else { return Either::Left(self.answer.handle(origin, request)) };
        let parent = request.headers().get("traceparent");
        let parent = parent.and_then(|parent| TraceContext::parse(parent.to_str().ok()?));
        let answered = self.answer.handle(origin, request).inspect(|response| {
            note("http.response.status_code", || response.status().as_str().to_owned());
        });
        // Boxed, so that the future of a request without a trace stays small.
        Either::Right(Box::pin(async move { tracer.trace("http request", parent, answered).await }))
    }
}
