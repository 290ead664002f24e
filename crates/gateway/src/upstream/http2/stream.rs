//! One request and its response over HTTP/2.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use http_body::Body;
use spile_listener::{IdleTimer, ReceiveBody, SendBody, SendBodyError};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::connection::{Http2Stream, StreamPermit};
use crate::forward::body::{Upload, UploadError};
use crate::route::Timeouts;
use crate::upstream::AttemptError;

/// A request is not cancelled before it has this age.
const MIN_AGE_TO_CANCEL: Duration = Duration::from_millis(100);

/// The body of a response. The stream counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct Http2Body {
    pub(crate) received: ReceiveBody,
    _permit: StreamPermit,
}

/// A request that is being sent while the response may already arrive.
struct Http2Exchange {
    sending: Option<SendBody<Upload>>,
    sent_bytes: u64,
    /// Whether the rest of the request is not sent.
    stopped: bool,
    /// Whether to wait for the response even if the client does not send its whole body.
    await_answer: bool,
    body_incomplete: bool,
    pending: PendingResponse,
    silence: IdleTimer,
}

/// A request without a response yet. If the client disconnects at once, the request is cancelled a moment later: many servers treat a
/// connection with requests that are cancelled at once as an attack (rapid reset), and close it with all of its streams.
struct PendingResponse {
    /// `None` once there is a response or an error.
    response: Option<ResponseFuture>,
    at: Instant,
    /// How many responses the connection had when the request was sent.
    responses: u32,
    permit: StreamPermit,
}

impl PendingResponse {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<RecvStream>, h2::Error>> {
        let Some(response) = &mut self.response else { return Poll::Pending };
        let stream_ended = ready!(Pin::new(response).poll(cx));
        self.response = None;
        Poll::Ready(stream_ended)
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        let Some(response) = self.response.take() else { return };
        self.permit.record_unanswered(self.responses);
        if let Some(left) = MIN_AGE_TO_CANCEL.checked_sub(self.at.elapsed())
            && let Ok(runtime) = Handle::try_current()
        {
            let permit = self.permit.clone();
            runtime.spawn(async move {
                let _ended = timeout(left, response).await;
                drop(permit);
            });
        }
    }
}

impl Http2Stream {
    /// Sends a request and waits for the header of the response. On an error, the rest of the body is put back into `upload`. If
    /// `await_answer`, the wait continues even if the client does not send its whole body.
    pub(crate) async fn send(
        mut self,
        head: Request<()>,
        upload: &mut Upload,
        timeouts: &Timeouts,
        await_answer: bool,
    ) -> Result<Response<Http2Body>, AttemptError> {
        let bodiless = upload.is_end_stream();
        let pending = self.connection.sender.send_request(head, bodiless);
        let (response, stream) = pending.map_err(|why| not_sent(&why))?;
        let body = (!bodiless).then(|| mem::replace(upload, Upload::none()));
        let sending = body.map(|body| SendBody::new(stream, body, timeouts.idle));
        let silence = IdleTimer::after(timeouts.first_byte);
        let (stopped, body_incomplete) = (false, false);
        let pending = PendingResponse {
            response: Some(response),
            at: Instant::now(),
            responses: self.connection.responses(),
            permit: self.permit.clone(),
        };
        let mut exchange = Http2Exchange {
            sending,
            sent_bytes: 0,
            stopped,
            await_answer,
            body_incomplete,
            pending,
            silence,
        };
        let answer = poll_fn(|cx| exchange.poll(cx)).await;
        let rest = exchange.sending.take();
        match answer {
            Ok(answer) => {
                self.connection.record_response();
                Ok(self.answered(answer, rest.filter(|_| !exchange.stopped)))
            }
            Err(_) if exchange.body_incomplete => Err(AttemptError::RequestBody),
            Err(why) => {
                if why == AttemptError::TimedOut {
                    self.connection.retire();
                }
                *upload = rest.map_or_else(Upload::none, SendBody::into_body);
                Err(why)
            }
        }
    }

    /// The response. The rest of the request is sent by a separate task.
    fn answered(self, answer: Response<RecvStream>, rest: Option<SendBody<Upload>>) -> Response<Http2Body> {
        if let Some(rest) = rest {
            let permit = self.permit.clone();
            tokio::spawn(async move {
                // An error shows at the client or the upstream.
                let _sent = rest.await;
                drop(permit);
            });
        }
        let (head, stream) = answer.into_parts();
        let received = ReceiveBody::new(stream, &head.headers);
        Response::from_parts(head, Http2Body { received, _permit: self.permit })
    }
}

impl Http2Exchange {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<RecvStream>, AttemptError>> {
        let Ok(awaits_client) = self.poll_upload(cx) else {
            return Poll::Ready(Err(AttemptError::RequestBody));
        };
        if let Poll::Ready(answer) = self.pending.poll(cx) {
            return Poll::Ready(answer.map_err(|why| stream_ended(&why)));
        }
        if awaits_client {
            // The upstream has nothing to respond to yet.
            self.silence.reset();
            return Poll::Pending;
        }
        self.silence.poll_expired(cx).map(|()| Err(AttemptError::TimedOut))
    }

    /// Sends more of the request's body. Returns whether the client has yet to send more.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<bool, UploadError> {
        let Some(sending) = self.sending.as_mut().filter(|_| !self.stopped) else { return Ok(false) };
        match Pin::new(&mut *sending).poll(cx) {
            Poll::Pending => {
                if mem::replace(&mut self.sent_bytes, sending.sent_bytes()) != sending.sent_bytes() {
                    self.silence.reset();
                }
                Ok(sending.awaits_body())
            }
            Poll::Ready(Err(SendBodyError::Broken(why))) if !self.await_answer => Err(why),
            // An upstream may respond without reading the whole request. If it does not respond, that says why.
            Poll::Ready(stream_ended) => {
                self.body_incomplete = matches!(stream_ended, Err(SendBodyError::Broken(_)));
                self.stopped = true;
                self.silence.reset();
                Ok(false)
            }
        }
    }
}

/// Why a request could not be sent: the connection has ended, or HTTP/2 cannot express it.
fn not_sent(why: &h2::Error) -> AttemptError {
    let stream_ended = why.is_io() || why.is_go_away() || why.is_reset() || why.is_library();
    if stream_ended { AttemptError::Closed { sent: false } } else { AttemptError::Unsendable }
}

/// Why a stream ended without a response.
fn stream_ended(why: &h2::Error) -> AttemptError {
    if why.is_remote() && (why.is_go_away() || why.reason() == Some(Reason::REFUSED_STREAM)) {
        // Streams after the last one that a GOAWAY names were not processed.
        AttemptError::NotProcessed
    } else if why.is_io() {
        AttemptError::Closed { sent: true }
    } else {
        AttemptError::InvalidResponse
    }
}
