//! The rest of a refused request's body. If it is small it is read and dropped, so that the connection stays usable.

use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http::header::EXPECT;
use http::request::Parts;
use http_body::Body;
use http_body_util::BodyExt;
use spile_listener::ClientBody;
use tokio::time::timeout;

/// The largest body that is read and dropped. A new connection costs less than a larger one.
const MAX_BYTES: u64 = 64 * 1024;
/// How long reading it may take.
const WITHIN: Duration = Duration::from_secs(2);

/// Reads the rest of the body in the background if that is worthwhile. Returns whether the connection can be used again.
/// It cannot after `Expect`: the client may or may not send the body, so it cannot be distinguished from the next request.
pub(crate) fn discard(body: ClientBody, request: &Parts) -> bool {
    if body.is_end_stream() || request.version == Version::HTTP_2 {
        return true;
    }
    if body.size_hint().lower() > MAX_BYTES || request.headers.contains_key(EXPECT) {
        return false;
    }
    tokio::spawn(timeout(WITHIN, read_through(body)));
    true
}

/// Reads up to the limit. hyper closes the connection if the body continues after that.
async fn read_through(mut body: ClientBody) {
    let mut left = MAX_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(less) = left.checked_sub(bytes) else { return };
        left = less;
    }
}
