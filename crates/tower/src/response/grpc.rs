//! A refusal in gRPC: HTTP 200 without a body, and the status in the headers, as in a response of trailers only.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use spile_core::{Decision, Micros, Reason};

use super::body::retry_message;
use super::{HeaderFields, UNAVAILABLE};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// `RESOURCE_EXHAUSTED`.
const EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
/// `UNAVAILABLE`.
const GONE: HeaderValue = HeaderValue::from_static("14");

/// Whether a request with these headers is a gRPC call.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.and_then(|kind| kind.strip_prefix(b"application/grpc"))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b'-' | b' ')))
}

/// The whole answer to a gRPC call that was refused at `now`: `RESOURCE_EXHAUSTED`, or `UNAVAILABLE` if the
/// store failed.
///
/// It is a response of trailers only, with the time to wait for clients that retry by themselves.
pub fn grpc_refusal(decision: &Decision, now: Micros) -> Response<Bytes> {
    HeaderFields::default().grpc_refusal(decision, now)
}

impl HeaderFields {
    /// The whole answer to a gRPC call that was refused at `now`, with these fields.
    pub fn grpc_refusal(&self, decision: &Decision, now: Micros) -> Response<Bytes> {
        let (status, message) = match decision.reason() {
            Reason::FailClosed => (GONE, HeaderValue::from_static(UNAVAILABLE)),
            _ => (EXHAUSTED, text(&retry_message(decision))),
        };
        let mut response = trailers_only(status, message);
        let headers = response.headers_mut();
        self.write(decision, now, headers);
        let wait_ms = decision.retry_after().as_micros().div_ceil(1_000);
        headers.insert(PUSHBACK, HeaderValue::from(u64::try_from(wait_ms).unwrap_or(u64::MAX)));
        response
    }
}

/// The answer to a gRPC call that cannot be charged.
pub(crate) fn grpc_problem(code: u8, detail: &str) -> Response<Bytes> {
    trailers_only(HeaderValue::from(u16::from(code)), text(detail))
}

fn trailers_only(status: HeaderValue, message: HeaderValue) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, status);
    headers.insert(MESSAGE, message);
    response
}

/// A message in gRPC's encoding: bytes that are not printable ASCII are percent-encoded.
fn text(message: &str) -> HeaderValue {
    const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');
    let spelled = utf8_percent_encode(message, ESCAPED).to_string();
    HeaderValue::try_from(spelled).unwrap_or_else(|_| HeaderValue::from_static("rate limit exceeded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_known_by_its_content_type() {
        let table = [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web+proto", true),
            ("application/grpcx", false),
            ("application/json", false),
        ];
        for (kind, expected) in table {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            assert_eq!(is_grpc(&headers), expected, "{kind}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn a_message_in_any_script_arrives_in_ascii() {
        assert_eq!(text("50% für Ünal\n"), "50%25 f%C3%BCr %C3%9Cnal%0A");
    }
}
