//! One connection to an upstream, which carries one request at a time.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Response;
use spile_listener::Idle;
use tokio::io::AsyncWrite;

use super::asked::Asked;
use super::body::{Inbound, Source};
use super::early::go_on_sending;
use super::framing::Framing;
use super::head::HeadReader;
use super::malformed::Malformed;
use super::request_writer::{Outgoing, SendError};
use super::transport::{Transport, poll_bytes};
use crate::forward::body::{Upload, UploadFailure};
use crate::route::Timeouts;
use crate::upstream::{Lines, Reached, Unanswered};

/// A connection on which nothing is under way.
#[derive(Debug)]
pub(crate) struct Http1 {
    pub(super) transport: Transport,
    /// Runs out when the upstream is silent. Kept, for a timer costs more to set up than to leave running.
    pub(super) idle: Idle,
    /// `None` if the upstream is not called by a name.
    reached: Option<Reached>,
}

/// What is under way: a request that leaves while its answer may already arrive.
struct Exchange<'r> {
    line: &'r mut Http1,
    upload: &'r mut Upload,
    outgoing: &'r mut Outgoing,
    answer: HeadReader,
    read_at_most: usize,
    /// See [`Asked::await_answer`].
    await_answer: bool,
    /// Whether the client has sent only a part of its body, and only the answer is waited for.
    undelivered: bool,
}

impl Http1 {
    pub(crate) fn new(transport: Transport) -> Self {
        Self { transport, idle: Idle::default(), reached: None }
    }

    /// The same, to this address of a name.
    pub(crate) fn at(self, reached: Reached) -> Self {
        Self { reached: Some(reached), ..self }
    }

    /// Whether a request may be sent.
    pub(crate) fn is_open(&mut self) -> bool {
        self.reached.as_ref().is_none_or(Reached::is_current) && self.transport.is_quiet()
    }

    /// The answer to a request. The connection goes back to `lines` with the last of the
    /// answer's body, unless either side wants it closed.
    pub(crate) fn ask<'r>(
        mut self: Box<Self>,
        asked: Asked<'r>,
        upload: &'r mut Upload,
        waits: &'r Timeouts,
        lines: &'r Arc<Lines>,
    ) -> impl Future<Output = Result<Response<Inbound>, Unanswered>> + Send + use<'r> {
        let Asked { method, read_at_most, await_answer, .. } = asked;
        let mut outgoing = Outgoing::new(asked, upload);
        async move {
            self.idle.restart(waits.first_byte);
            let mut exchange = Exchange {
                line: &mut self,
                upload,
                outgoing: &mut outgoing,
                answer: HeadReader::default(),
                read_at_most,
                await_answer,
                undelivered: false,
            };
            let answered = poll_fn(|cx| exchange.poll(cx)).await;
            // An upstream that does not answer half a request is not at fault.
            let unanswered = |why| if exchange.undelivered { Unanswered::Undelivered } else { why };
            let (head, arrived) = answered.map_err(unanswered)?;
            let framing = Framing::of(method, &head)?;
            self.idle.restart(waits.idle);
            let reusable = framing.keeps_alive && outgoing.is_done();
            let source = if outgoing.is_under_way() {
                let upload = mem::replace(upload, Upload::none());
                Source::Early(Box::new(go_on_sending(*self, outgoing, upload)))
            } else {
                Source::Line(self)
            };
            let lines = reusable.then(|| Arc::clone(lines));
            Ok(head.map(|()| Inbound::new(source, arrived, framing.length, lines)))
        }
    }
}

impl Exchange<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Response<()>, bytes::Bytes), Unanswered>> {
        let Http1 { transport, idle, .. } = &mut *self.line;
        match self.outgoing.poll(cx, transport, self.upload, || idle.stir()) {
            Poll::Ready(Err(SendError::Upload(UploadFailure::Broken | UploadFailure::Stalled)))
                if self.await_answer =>
            {
                self.undelivered = true;
                self.outgoing.give_up();
                // The upstream waits for what will never come, unless it is told.
                let _told = Pin::new(&mut *transport).poll_shutdown(cx);
            }
            Poll::Ready(Err(SendError::Upload(_))) => return Poll::Ready(Err(Unanswered::Undelivered)),
            // An upstream may answer and hang up without taking all of the request: what it said counts.
            Poll::Ready(Err(SendError::Io(_))) if !self.outgoing.is_unsent() => self.outgoing.give_up(),
            Poll::Ready(Err(SendError::Io(_))) => {
                return Poll::Ready(Err(Unanswered::Closed { sent: false }));
            }
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        while let Poll::Ready(read) = poll_bytes(transport, cx, self.read_at_most) {
            match read {
                Ok(bytes) if !bytes.is_empty() => {
                    if let Some(whole) = self.answer.take_in(bytes)? {
                        return Poll::Ready(Ok(whole));
                    }
                    idle.stir();
                }
                Ok(_) | Err(_) if self.answer.has_begun() => return Poll::Ready(Err(Unanswered::Unreadable)),
                Ok(_) | Err(_) => return Poll::Ready(Err(Unanswered::Closed { sent: true })),
            }
        }
        // What the client has yet to send, the upstream cannot answer. The upload has a limit on silence of its own.
        if self.upload.is_waiting() && self.outgoing.is_under_way() {
            idle.stir();
            return Poll::Pending;
        }
        idle.poll_over(cx).map(|()| Err(Unanswered::Silent))
    }
}

impl From<Malformed> for Unanswered {
    fn from(_: Malformed) -> Self {
        Self::Unreadable
    }
}
