//! Continues a request's trace at the upstream, and sets the attributes of spans.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use spile_observe::trace::{
    TraceContext, current, note, note_error, note_response, note_route, note_server, note_version,
};

use crate::forward::{FailedExchange, UpstreamResponse};
use crate::refusal::GatewayRefusal;
use crate::route::Route;
use crate::upstream::UpstreamEndpoint;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The trace that the request is part of. If it cannot be parsed, both trace headers are removed.
pub(super) fn parent_context(headers: &mut HeaderMap) -> Option<TraceContext> {
    let parent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).and_then(TraceContext::parse);
    if parent.is_none() {
        headers.remove(TRACEPARENT);
        headers.remove(TRACESTATE);
    }
    parent
}

/// Makes the current span the parent of the upstream's. If the trace is not sampled, the client's header stays.
pub(super) fn write_traceparent(headers: &mut HeaderMap) {
    if let Some(Ok(context)) = current().map(|context| HeaderValue::try_from(context.to_string())) {
        headers.insert(TRACEPARENT, context);
    }
}

/// Records the route that a request matches.
pub(super) fn note_matched(route: &Route) {
    note_route(|| route.path.to_string());
    note("spile.route", || route.name.to_string());
}

/// Records which upstream was asked, and the outcome.
pub(super) fn note_exchange(answer: &Result<UpstreamResponse, FailedExchange>) {
    match answer {
        Ok(answer) => {
            note_upstream(answer.endpoint());
            note_version(answer.response.version());
            note_response(answer.response.status(), answer.response.headers());
        }
        Err(failed) => {
            if let Some((endpoint, _)) = &failed.last_attempt {
                note_upstream(endpoint);
            }
            note_error(|| error_type(&failed.refusal).to_owned());
        }
    }
}

fn note_upstream(endpoint: &UpstreamEndpoint) {
    let upstream = &endpoint.upstream;
    match &upstream.socket {
        None => note_server(upstream.host(), upstream.port()),
        Some(path) => note("server.address", || path.display().to_string()),
    }
}

/// Why there is no answer. Uses the labels of the metric `gateway_upstream_failures_total` where they exist.
const fn error_type(refusal: &GatewayRefusal) -> &'static str {
    match refusal {
        GatewayRefusal::Unreachable => "unreachable",
        GatewayRefusal::TimedOut => "timed_out",
        GatewayRefusal::BadAnswer => "bad_answer",
        GatewayRefusal::Busy => "busy",
        GatewayRefusal::NoLocalResources => "local",
        GatewayRefusal::BodyStalled => "body_stalled",
        GatewayRefusal::BodyTooLarge => "body_too_large",
        _ => "refused",
    }
}
