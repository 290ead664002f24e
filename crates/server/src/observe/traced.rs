//! Traces the requests of any HTTP listener.

use futures_util::future::Either;
use http::{Request, Response};
use spile_listener::{ClientBody, HttpHandler, RequestOrigin};
use spile_observe::trace::{TraceContext, Tracer, note_request, note_response, note_route};

/// Answers requests, each as a span if there is a tracer.
#[derive(Clone)]
pub(crate) struct Traced<A> {
    pub(crate) answer: A,
    pub(crate) tracer: Option<Tracer>,
    /// The pattern that a path matches. `None` if there is no such path.
    pub(crate) route: fn(&str) -> Option<&'static str>,
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
        let (answer, route) = (self.answer, self.route);
        let answered = async move {
            let (parts, body) = request.into_parts();
            note_request(&parts, origin.secure);
            if let Some(route) = route(parts.uri.path()) {
                note_route(|| route.to_owned());
            }
            let response = answer.handle(origin, Request::from_parts(parts, body)).await;
            note_response(response.status(), response.headers());
            response
        };
        // Boxed, so that the future of a request without a trace stays small.
        Either::Right(Box::pin(async move { tracer.trace("http request", parent, answered).await }))
    }
}
