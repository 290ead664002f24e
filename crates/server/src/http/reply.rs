//! Replies to callers.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;

/// An answer whose whole body is known.
pub(crate) type HttpReply = Response<Full<Bytes>>;

/// An answer with these fields besides its content type.
pub(crate) fn reply(
    status: StatusCode,
    mut headers: HeaderMap,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> HttpReply {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    *reply.headers_mut() = headers;
    reply
}
