//! Every answer that the gateway gives in an upstream's place: a problem document, or gRPC's own form of one.
//!
//! The words are fixed. Nothing that an upstream, a library or the network said goes into them.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use spile_tower::response::problem;

mod page;

pub use page::{RefusalKind, RefusalPage, RefusalPageError, RefusalPages};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Why a request goes no further.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The request cannot be read in one way only.
    Unclear(&'static str),
    /// The request has two ends, and what follows may be part of it.
    TwoFramings,
    /// The request's body is in a coding that the gateway would lose.
    OtherCoding,
    /// The request has come through too often.
    Circling,
    /// The method is one that no gateway forwards.
    Method,
    UriTooLong,
    TooManyFields,
    NoRoute,
    Unauthenticated(&'static str),
    /// Too many wrong API keys came from this address.
    Guessing,
    Forbidden(&'static str),
    /// The limiter said no; the answer is its own.
    Limited(Box<Response<Bytes>>),
    /// A rule cannot be applied to any request: the gateway is set up wrongly.
    Misconfigured,
    BodyTooLarge,
    /// The client stopped sending its body.
    BodyStalled,
    /// Too many requests wait for the upstream already, or this one has waited too long.
    Busy,
    /// This machine cannot open another connection.
    Local,
    /// No connection to an upstream came about.
    Unreachable,
    /// The upstream's answer broke off or cannot be read.
    BadAnswer,
    /// The upstream was silent for too long.
    TimedOut,
}

impl Refusal {
    pub(crate) fn into_response(self, grpc: bool) -> Response<Bytes> {
        let (status, code, detail) = match self {
            Self::Limited(response) => return *response,
            ref other => other.words(),
        };
        let mut response = if grpc { trailers_only(code, detail) } else { problem(status, detail) };
        if let Some((name, value)) = self.field() {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    /// The HTTP status, gRPC's status and the words.
    fn words(&self) -> (StatusCode, u16, &'static str) {
        match self {
            Self::Unclear(why) => (StatusCode::BAD_REQUEST, 3, why),
            Self::TwoFramings => (
                StatusCode::BAD_REQUEST,
                3,
                "the request has both Content-Length and Transfer-Encoding, or follows one whose end is unclear",
            ),
            Self::OtherCoding => {
                (StatusCode::BAD_REQUEST, 3, "the request's Transfer-Encoding is not just chunked")
            }
            Self::Circling => (StatusCode::LOOP_DETECTED, 9, "the request goes in circles"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, 12, "this method is not forwarded"),
            Self::UriTooLong => (StatusCode::URI_TOO_LONG, 3, "the request target is too long"),
            Self::TooManyFields => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, 3, "the request has too many header fields")
            }
            Self::NoRoute => (StatusCode::NOT_FOUND, 12, "no route leads there"),
            Self::Unauthenticated(why) => (StatusCode::UNAUTHORIZED, 16, why),
            Self::Guessing => {
                (StatusCode::TOO_MANY_REQUESTS, 8, "too many wrong API keys came from this address")
            }
            Self::Forbidden(why) => (StatusCode::FORBIDDEN, 7, why),
            Self::BodyTooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, 8, "the body is larger than this route takes")
            }
            Self::BodyStalled => (StatusCode::REQUEST_TIMEOUT, 1, "the body stopped arriving"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, 14, "the service is busy; please retry"),
            Self::Local => {
                (StatusCode::SERVICE_UNAVAILABLE, 14, "the gateway has no connections left; please retry")
            }
            Self::Unreachable => (StatusCode::BAD_GATEWAY, 14, "the service cannot be reached"),
            Self::BadAnswer => (StatusCode::BAD_GATEWAY, 14, "the service gave no valid answer"),
            Self::TimedOut => (StatusCode::GATEWAY_TIMEOUT, 4, "the service did not answer in time"),
            Self::Misconfigured | Self::Limited(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, 13, "the gateway cannot apply its limits")
            }
        }
    }

    fn field(&self) -> Option<(HeaderName, &'static str)> {
        match self {
            Self::Unauthenticated(_) => Some((WWW_AUTHENTICATE, "Bearer, ApiKey")),
            Self::Method => Some((ALLOW, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")),
            Self::Busy | Self::Local => Some((RETRY_AFTER, "1")),
            Self::Guessing => Some((RETRY_AFTER, "2")),
            // What is left of the body has not been read, and never will be.
            Self::TwoFramings | Self::OtherCoding | Self::BodyTooLarge | Self::BodyStalled => {
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
