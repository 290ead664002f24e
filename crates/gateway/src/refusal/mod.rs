//! Refusals: the responses that the gateway sends in place of an upstream, as a problem document or in the form of
//! gRPC.
//!
//! The texts are fixed. They contain nothing that an upstream, a library or the network said.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use spile_tower::response::problem;

mod log;
mod page;

pub(crate) use log::RefusalLog;
pub use page::{RefusalKind, RefusalPage, RefusalPageError, RefusalPages};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Why a request is not forwarded, or got no response.
#[derive(Debug)]
pub(crate) enum GatewayRefusal {
    /// The request is malformed or ambiguous.
    BadRequest(&'static str),
    /// The end of the request is ambiguous, so what follows may be part of it.
    AmbiguousFraming,
    /// The body has a transfer coding other than chunked, which the gateway would lose.
    UnsupportedCoding,
    /// The request has come through too many gateways.
    Loop,
    /// The method is never forwarded.
    MethodNotAllowed,
    UriTooLong,
    TooManyFields,
    NoRoute,
    Unauthenticated(&'static str),
    /// Too many wrong credentials came from this address.
    TooManyGuesses,
    Forbidden(&'static str),
    /// The route charges by the answer, and has no price for an upgraded connection.
    UnpricedUpgrade,
    /// The limiter denied the request. The response is the limiter's.
    Limited(Box<Response<Bytes>>),
    /// A rule cannot be applied because of a mistake in the configuration.
    Misconfigured,
    BodyTooLarge,
    /// The client stopped sending its body.
    BodyStalled,
    /// Too many requests wait for the upstream, or this one has waited too long.
    Busy,
    /// This machine cannot open another connection.
    NoLocalResources,
    /// No connection to an upstream could be opened.
    Unreachable,
    /// The upstream's response broke off or is malformed.
    BadAnswer,
    /// The upstream did not respond in time.
    TimedOut,
}

impl GatewayRefusal {
    pub(crate) fn into_response(self, grpc: bool) -> Response<Bytes> {
        let (status, code, detail) = match self {
            Self::Limited(response) => return *response,
            ref other => other.status_and_detail(),
        };
        let mut response = if grpc { trailers_only(code, detail) } else { problem(status, detail) };
        if let Some((name, value)) = self.extra_header() {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    /// The HTTP status of the refusal, also of one that a gRPC client gets as a status of gRPC.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Limited(response) => response.status(),
            other => other.status_and_detail().0,
        }
    }

    /// The reason in a few words, for logs.
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::Limited(response) if response.status() == StatusCode::SERVICE_UNAVAILABLE => {
                "denied because the store failed"
            }
            Self::Limited(_) => "over the limit",
            other => other.status_and_detail().2,
        }
    }

    /// The HTTP status, the gRPC status and the text.
    fn status_and_detail(&self) -> (StatusCode, u16, &'static str) {
        match self {
            Self::BadRequest(why) => (StatusCode::BAD_REQUEST, 3, why),
            Self::AmbiguousFraming => (
                StatusCode::BAD_REQUEST,
                3,
                "the request has both Content-Length and Transfer-Encoding, or follows one whose end is unclear",
            ),
            Self::UnsupportedCoding => {
                (StatusCode::BAD_REQUEST, 3, "the request's Transfer-Encoding is not just chunked")
            }
            Self::Loop => (StatusCode::LOOP_DETECTED, 9, "the request goes in circles"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, 12, "this method is not forwarded"),
            Self::UriTooLong => (StatusCode::URI_TOO_LONG, 3, "the request target is too long"),
            Self::TooManyFields => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, 3, "the request has too many header fields")
            }
            Self::NoRoute => (StatusCode::NOT_FOUND, 12, "no route matches"),
            Self::Unauthenticated(why) => (StatusCode::UNAUTHORIZED, 16, why),
            Self::TooManyGuesses => {
                (StatusCode::TOO_MANY_REQUESTS, 8, "too many wrong credentials came from this address")
            }
            Self::Forbidden(why) => (StatusCode::FORBIDDEN, 7, why),
            Self::UnpricedUpgrade => (
                StatusCode::FORBIDDEN,
                7,
                "connections cannot be upgraded here: this route charges by the answer and has no upgrade_cost",
            ),
            Self::BodyTooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, 8, "the body is larger than this route allows")
            }
            Self::BodyStalled => (StatusCode::REQUEST_TIMEOUT, 1, "the body stopped arriving"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, 14, "the service is busy; please retry"),
            Self::NoLocalResources => {
                (StatusCode::SERVICE_UNAVAILABLE, 14, "the gateway has no connections left; please retry")
            }
            Self::Unreachable => (StatusCode::BAD_GATEWAY, 14, "the service cannot be reached"),
            Self::BadAnswer => (StatusCode::BAD_GATEWAY, 14, "the service gave no valid response"),
            Self::TimedOut => (StatusCode::GATEWAY_TIMEOUT, 4, "the service did not respond in time"),
            Self::Misconfigured | Self::Limited(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, 13, "the gateway cannot apply its limits")
            }
        }
    }

    fn extra_header(&self) -> Option<(HeaderName, &'static str)> {
        match self {
            Self::Unauthenticated(_) => Some((WWW_AUTHENTICATE, "Bearer, ApiKey")),
            Self::MethodNotAllowed => Some((ALLOW, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")),
            Self::Busy | Self::NoLocalResources => Some((RETRY_AFTER, "1")),
            Self::TooManyGuesses => Some((RETRY_AFTER, "2")),
            // The rest of the body is never read, so the connection cannot be used again.
            Self::AmbiguousFraming | Self::UnsupportedCoding | Self::BodyTooLarge | Self::BodyStalled => {
                Some((CONNECTION, "close"))
            }
            _ => None,
        }
    }
}

fn trailers_only(code: u16, detail: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, HeaderValue::from(code));
    headers.insert(GRPC_MESSAGE, HeaderValue::from_static(detail));
    response
}
