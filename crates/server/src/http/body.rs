//! Reads a request's body within its bounds: type, size and time.

use std::fmt::Display;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::problem::Problem;

/// The default bound on a body, in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// Bounds the bodies above [`MAX_BYTES`] in memory, so that callers cannot exhaust it.
static LARGE: Semaphore = Semaphore::const_new(16);
/// How long a caller may take to send a body.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// A body on its way in, from either listener.
pub(crate) trait Incoming: Body<Data = Bytes, Error: Display> + Unpin {}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Incoming for B {}

/// A body that has arrived. One above the usual bound holds its place among the large ones.
pub(crate) struct FullBody {
    pub(crate) bytes: Bytes,
    _place: Option<SemaphorePermit<'static>>,
}

/// The bytes of a JSON body.
pub(crate) async fn read_json<B: Incoming>(request: &mut Request<B>) -> Result<Bytes, Problem> {
    read_json_up_to(MAX_BYTES, request).await.map(|whole| whole.bytes)
}

/// A JSON body of at most `max_bytes`.
pub(crate) async fn read_json_up_to<B: Incoming>(
    max_bytes: usize,
    request: &mut Request<B>,
) -> Result<FullBody, Problem> {
    if !is_json(request.headers()) {
        let detail = "Content-Type: this path takes application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).with("field", "Content-Type"));
    }
    in_time(collect(request.body_mut(), max_bytes)).await
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Applies the timeout. A body that has already arrived starts no timer.
async fn in_time(body: impl Future<Output = Result<FullBody, Problem>>) -> Result<FullBody, Problem> {
    let mut body = pin!(body);
    if let Poll::Ready(bytes) = std::future::poll_fn(|cx| Poll::Ready(body.as_mut().poll(cx))).await {
        return bytes;
    }
    tokio::time::timeout(MAX_WAIT, body).await.unwrap_or_else(|_| {
        let detail = format!("body: did not arrive within {} seconds", MAX_WAIT.as_secs());
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail).with("field", "body"))
    })
}

async fn collect(body: &mut impl Incoming, max_bytes: usize) -> Result<FullBody, Problem> {
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large(max_bytes));
    }
    let first = next(body).await?.unwrap_or_default();
    // Most bodies come in one piece, which need not be copied.
    if body.is_end_stream() && first.len() <= MAX_BYTES {
        return Ok(FullBody { bytes: first, _place: None });
    }
    let (mut whole, mut place) = (BytesMut::from(first), None);
    while let Some(more) = next(body).await? {
        if whole.len() + more.len() > max_bytes {
            return Err(too_large(max_bytes));
        }
        if whole.len() + more.len() > MAX_BYTES && place.is_none() {
            // The semaphore is never closed, so this never fails.
            place = LARGE.acquire().await.ok();
        }
        whole.extend_from_slice(&more);
    }
    Ok(FullBody { bytes: whole.freeze(), _place: place })
}

async fn next(body: &mut impl Incoming) -> Result<Option<Bytes>, Problem> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|why| {
            let detail = format!("body: could not be read to its end: {why}");
            Problem::new(StatusCode::BAD_REQUEST, detail).with("field", "body")
        })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// The rest of the body is not read, and the connection is closed in a way that lets its sender read the answer.
fn too_large(max_bytes: usize) -> Problem {
    let detail = format!("body: is larger than {max_bytes} bytes, the most that is read");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        .with("field", "body")
        .with_header(CONNECTION, HeaderValue::from_static("close"))
}
