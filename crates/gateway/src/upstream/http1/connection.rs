//! An HTTP/1.1 connection to an upstream, which carries one request at a time.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Response;
use spile_listener::IdleTimer;
use tokio::io::AsyncWrite;

use super::MalformedResponse;
use super::body::{BodySource, Http1Body};
use super::early::send_rest;
use super::framing::ResponseFraming;
use super::head::HeadReader;
use super::request_writer::{Http1Request, RequestWriter, SendError};
use super::transport::{UpstreamIo, poll_bytes};
use crate::forward::body::{Upload, UploadError};
use crate::route::Timeouts;
use crate::upstream::{AttemptError, ConnectedAddress, ConnectionPool};

/// A connection without a request.
#[derive(Debug)]
pub(crate) struct Http1Connection {
    pub(super) transport: UpstreamIo,
    /// Expires when the upstream is silent. Kept between requests, because a new timer costs more than a running one.
    pub(super) idle: IdleTimer,
    /// `None` if the upstream is given by its address.
    connected_to: Option<ConnectedAddress>,
}

/// A request that is being sent while the response may already arrive.
struct Http1Exchange<'r> {
    connection: &'r mut Http1Connection,
    upload: &'r mut Upload,
    writer: &'r mut RequestWriter,
    answer: HeadReader,
    read_at_most: usize,
    /// See [`Http1Request::await_answer`].
    await_answer: bool,
    /// Whether the client has sent only part of its body, and only the response is waited for.
    body_incomplete: bool,
}

impl Http1Connection {
    pub(crate) fn new(transport: UpstreamIo) -> Self {
        Self { transport, idle: IdleTimer::default(), connected_to: None }
    }

    /// Sets the address of a name that the connection leads to.
    pub(crate) fn with_address(self, connected_to: ConnectedAddress) -> Self {
        Self { connected_to: Some(connected_to), ..self }
    }

    /// Whether a request can be sent: the connection is open, and the name still has its address.
    pub(crate) fn is_open(&mut self) -> bool {
        self.connected_to.as_ref().is_none_or(ConnectedAddress::is_current) && self.transport.is_idle()
    }

    /// Sends a request and waits for the header of the response. The connection goes back to `pool` at the end of the
    /// response's body, unless either side wants it closed.
    pub(crate) fn send<'r>(
        mut self: Box<Self>,
        request: Http1Request<'r>,
        upload: &'r mut Upload,
        timeouts: &'r Timeouts,
        pool: &'r Arc<ConnectionPool>,
    ) -> impl Future<Output = Result<Response<Http1Body>, AttemptError>> + Send + use<'r> {
        let Http1Request { method, read_at_most, await_answer, .. } = request;
        let mut writer = RequestWriter::new(request, upload);
        async move {
            self.idle.restart(timeouts.first_byte);
            let mut exchange = Http1Exchange {
                connection: &mut self,
                upload,
                writer: &mut writer,
                answer: HeadReader::default(),
                read_at_most,
                await_answer,
                body_incomplete: false,
            };
            let answered = poll_fn(|cx| exchange.poll(cx)).await;
            // An upstream that does not respond to half a request is not at fault.
            let unanswered = |why| if exchange.body_incomplete { AttemptError::RequestBody } else { why };
            let (head, arrived) = answered.map_err(unanswered)?;
            let framing = ResponseFraming::of(method, &head)?;
            self.idle.restart(timeouts.idle);
            let reusable = framing.keeps_alive && writer.is_done();
            let source = if writer.is_under_way() {
                let upload = mem::replace(upload, Upload::none());
                BodySource::Early(Box::new(send_rest(*self, writer, upload)))
            } else {
                BodySource::Connection(self)
            };
            let pool = reusable.then(|| Arc::clone(pool));
            Ok(head.map(|()| Http1Body::new(source, arrived, framing.length, pool)))
        }
    }
}

impl Http1Exchange<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Response<()>, bytes::Bytes), AttemptError>> {
        let Http1Connection { transport, idle, .. } = &mut *self.connection;
        match self.writer.poll(cx, transport, self.upload, || idle.reset()) {
            Poll::Ready(Err(SendError::Upload(UploadError::Broken | UploadError::Stalled)))
                if self.await_answer =>
            {
                self.body_incomplete = true;
                self.writer.give_up();
                // Without a shutdown, the upstream would wait for the rest of the body.
                let _told = Pin::new(&mut *transport).poll_shutdown(cx);
            }
            Poll::Ready(Err(SendError::Upload(_))) => return Poll::Ready(Err(AttemptError::RequestBody)),
            // An upstream may respond and close without reading the whole request. The response still counts.
            Poll::Ready(Err(SendError::Io(_))) if !self.writer.is_unsent() => self.writer.give_up(),
            Poll::Ready(Err(SendError::Io(_))) => {
                return Poll::Ready(Err(AttemptError::Closed { sent: false }));
            }
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        while let Poll::Ready(read) = poll_bytes(transport, cx, self.read_at_most) {
            match read {
                Ok(bytes) if !bytes.is_empty() => {
                    if let Some(whole) = self.answer.push(bytes)? {
                        return Poll::Ready(Ok(whole));
                    }
                    idle.reset();
                }
                Ok(_) | Err(_) if self.answer.has_begun() => {
                    return Poll::Ready(Err(AttemptError::InvalidResponse));
                }
                Ok(_) | Err(_) => return Poll::Ready(Err(AttemptError::Closed { sent: true })),
            }
        }
        // The upstream cannot respond before the client has sent more. The upload has a separate idle timeout.
        if self.upload.is_waiting() && self.writer.is_under_way() {
            idle.reset();
            return Poll::Pending;
        }
        idle.poll_expired(cx).map(|()| Err(AttemptError::TimedOut))
    }
}

impl From<MalformedResponse> for AttemptError {
    fn from(_: MalformedResponse) -> Self {
        Self::InvalidResponse
    }
}
