//! One request over HTTP/2, and its answer.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use http_body::Body;
use spile_listener::{Idle, Received, Sending, Unsent};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::connection::{Http2Stream, Slot};
use crate::forward::body::{Upload, UploadFailure};
use crate::route::Timeouts;
use crate::upstream::Unanswered;

/// How old a request is at least when it is called off.
const CALLED_OFF_AFTER: Duration = Duration::from_millis(100);

/// The body of an answer. Its place on the connection is kept until it is dropped.
#[derive(Debug)]
pub(crate) struct Http2Body {
    pub(crate) received: Received,
    _slot: Slot,
}

/// What is under way: a request that leaves while its answer may already arrive.
struct Exchange {
    sending: Option<Sending<Upload>>,
    sent_bytes: u64,
    /// Whether nothing more of the request is sent.
    stopped: bool,
    /// Whether the answer is waited for even if the client has sent only a part of its body.
    await_answer: bool,
    undelivered: bool,
    begun: Begun,
    silence: Idle,
}

/// A request that the upstream has been asked. If the client leaves at once, it is called off a moment later: many
/// servers take a connection with requests that are called off at once for an attack, and end it with all of its streams.
struct Begun {
    /// `None` once it has ended.
    response: Option<ResponseFuture>,
    at: Instant,
    slot: Slot,
}

impl Begun {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<RecvStream>, h2::Error>> {
        let Some(response) = &mut self.response else { return Poll::Pending };
        let ended = ready!(Pin::new(response).poll(cx));
        self.response = None;
        Poll::Ready(ended)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let Some(left) = CALLED_OFF_AFTER.checked_sub(self.at.elapsed()) else { return };
        if let Some(response) = self.response.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let slot = self.slot.clone();
            runtime.spawn(async move {
                let _ended = timeout(left, response).await;
                drop(slot);
            });
        }
    }
}

impl Http2Stream {
    /// The answer to a request. If there is none, what was not sent of the body is put back. If `await_answer`, a client
    /// that leaves in the middle of its body does not end the wait.
    pub(crate) async fn ask(
        mut self,
        head: Request<()>,
        upload: &mut Upload,
        waits: &Timeouts,
        await_answer: bool,
    ) -> Result<Response<Http2Body>, Unanswered> {
        let bodiless = upload.is_end_stream();
        let begun = self.connection.sender.send_request(head, bodiless);
        let (response, stream) = begun.map_err(|why| unsent(&why))?;
        let body = (!bodiless).then(|| mem::replace(upload, Upload::none()));
        let sending = body.map(|body| Sending::new(stream, body, waits.idle));
        let silence = Idle::after(waits.first_byte);
        let (stopped, undelivered) = (false, false);
        let begun = Begun { response: Some(response), at: Instant::now(), slot: self.slot.clone() };
        let mut exchange =
            Exchange { sending, sent_bytes: 0, stopped, await_answer, undelivered, begun, silence };
        let answer = poll_fn(|cx| exchange.poll(cx)).await;
        let rest = exchange.sending.take();
        match answer {
            Ok(answer) => Ok(self.answered(answer, rest.filter(|_| !exchange.stopped))),
            Err(_) if exchange.undelivered => Err(Unanswered::Undelivered),
            Err(why) => {
                if why == Unanswered::Silent {
                    self.connection.retire();
                }
                *upload = rest.map_or_else(Upload::none, Sending::into_body);
                Err(why)
            }
        }
    }

    /// The answer, while the rest of the request goes its own way.
    fn answered(self, answer: Response<RecvStream>, rest: Option<Sending<Upload>>) -> Response<Http2Body> {
        if let Some(rest) = rest {
            let slot = self.slot.clone();
            tokio::spawn(async move {
                // What becomes of it is between the client and the upstream.
                let _sent = rest.await;
                drop(slot);
            });
        }
        let (head, stream) = answer.into_parts();
        let received = Received::new(stream, &head.headers);
        Response::from_parts(head, Http2Body { received, _slot: self.slot })
    }
}

impl Exchange {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<RecvStream>, Unanswered>> {
        let Ok(awaits_client) = self.poll_upload(cx) else {
            return Poll::Ready(Err(Unanswered::Undelivered));
        };
        if let Poll::Ready(answer) = self.begun.poll(cx) {
            return Poll::Ready(answer.map_err(|why| ended(&why)));
        }
        if awaits_client {
            // The upstream has nothing to answer yet.
            self.silence.stir();
            return Poll::Pending;
        }
        self.silence.poll_over(cx).map(|()| Err(Unanswered::Silent))
    }

    /// Goes on with the request's body. Says whether the client is to send more of it.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<bool, UploadFailure> {
        let Some(sending) = self.sending.as_mut().filter(|_| !self.stopped) else { return Ok(false) };
        match Pin::new(&mut *sending).poll(cx) {
            Poll::Pending => {
                if mem::replace(&mut self.sent_bytes, sending.sent_bytes()) != sending.sent_bytes() {
                    self.silence.stir();
                }
                Ok(sending.awaits_body())
            }
            Poll::Ready(Err(Unsent::Broken(why))) if !self.await_answer => Err(why),
            // An upstream may answer without taking all of the request. If it does not answer, that says why.
            Poll::Ready(ended) => {
                self.undelivered = matches!(ended, Err(Unsent::Broken(_)));
                self.stopped = true;
                self.silence.stir();
                Ok(false)
            }
        }
    }
}

/// Why a request could not be begun. The connection may have ended, or cannot express it.
fn unsent(why: &h2::Error) -> Unanswered {
    let ended = why.is_io() || why.is_go_away() || why.is_reset() || why.is_library();
    if ended { Unanswered::Closed { sent: false } } else { Unanswered::Unsendable }
}

/// What the end of a stream says about its request.
fn ended(why: &h2::Error) -> Unanswered {
    if why.is_remote() && (why.is_go_away() || why.reason() == Some(Reason::REFUSED_STREAM)) {
        // Streams beyond the last one that a GOAWAY names were not looked at.
        Unanswered::NotProcessed
    } else if why.is_io() {
        Unanswered::Closed { sent: true }
    } else {
        Unanswered::Unreadable
    }
}
