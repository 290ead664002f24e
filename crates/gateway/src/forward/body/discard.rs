//! Bodies of requests that were turned away: what is left of a small one is read and dropped, so that its connection can
//! carry the next request.

use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http::header::EXPECT;
use http::request::Parts;
use http_body::Body;
use http_body_util::BodyExt;
use spile_listener::ClientBody;
use tokio::time::timeout;

/// Bytes that are read for nothing. A larger body costs more than a new connection.
const MAX_BYTES: u64 = 64 * 1024;
/// How long they may take.
const WITHIN: Duration = Duration::from_secs(2);

/// Sees to it that the connection can go on, and says whether it can. A body that was announced by `Expect` may come or
/// not, so that nobody could tell it from the next request.
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

/// Reads to the end, or to where it gets too much: hyper then closes the connection.
async fn read_through(mut body: ClientBody) {
    let mut left = MAX_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(less) = left.checked_sub(bytes) else { return };
        left = less;
    }
}
