//! The trace that a request is part of, on its way in and on to the upstream.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use spile_observe::trace::{self, TraceContext};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The trace that the request came with. What another tracer added to one that cannot be read goes with it.
pub(crate) fn context_of(headers: &mut HeaderMap) -> Option<TraceContext> {
    let came_with =
        headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).and_then(TraceContext::parse);
    if came_with.is_none() {
        headers.remove(TRACEPARENT);
        headers.remove(TRACESTATE);
    }
    came_with
}

/// Names the span under way as what the upstream's work is part of. A trace that nobody keeps goes on as it came.
pub(crate) fn pass_on(headers: &mut HeaderMap) {
    if let Some(Ok(context)) = trace::current().map(|context| HeaderValue::try_from(context.to_string())) {
        headers.insert(TRACEPARENT, context);
    }
}
