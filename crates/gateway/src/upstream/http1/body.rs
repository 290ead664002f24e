//! The body of a response, read from the connection as the client takes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spile_listener::IdleTimer;

use super::chunked::{ChunkStep, ChunkedDecoder};
use super::connection::Http1Connection;
use super::early::EarlyResponse;
use super::framing::BodyLength;
use super::transport::{UpgradedUpstream, poll_bytes};
use crate::forward::body::{Activity, IncompleteBody};
use crate::upstream::ConnectionPool;

/// A response body and the connection that it arrives on.
#[derive(Debug)]
pub(crate) struct Http1Body {
    source: BodySource,
    /// Bytes that have arrived and were not passed on yet.
    arrived: Bytes,
    left: BodyLeft,
    /// The pool that gets the connection at the end of the body. `None` if the connection must be closed.
    pool: Option<Arc<ConnectionPool>>,
    activity: Activity,
    read_at_most: usize,
}

/// The source of the rest of the body.
#[derive(Debug)]
pub(super) enum BodySource {
    Connection(Box<Http1Connection>),
    /// The request is still being sent.
    Early(Box<EarlyResponse>),
    Gone,
}

/// How much of the body is left.
#[derive(Debug)]
enum BodyLeft {
    Nothing,
    Exact(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
}

impl Http1Body {
    pub(super) fn new(
        source: BodySource,
        arrived: Bytes,
        length: BodyLength,
        pool: Option<Arc<ConnectionPool>>,
    ) -> Self {
        let left = match length {
            BodyLength::None => BodyLeft::Nothing,
            BodyLength::Exact(bytes) => BodyLeft::Exact(bytes),
            BodyLength::Chunked => BodyLeft::Chunked(Box::default()),
            BodyLength::UntilClose => BodyLeft::UntilClose,
        };
        Self { source, arrived, left, pool, activity: Activity::default(), read_at_most: usize::MAX }
    }

    /// Keeps the body from being idle while the request's body moves.
    pub(crate) fn share_activity(&mut self, activity: Activity) {
        self.activity = activity;
    }

    /// Limits the bytes of one read, so that less is held in memory if the client is slow.
    pub(crate) const fn read_at_most(&mut self, bytes: usize) {
        self.read_at_most = bytes;
    }

    /// The connection, once both sides have switched protocols. `None` if the request is still being sent.
    pub(crate) fn into_upgraded(self) -> Option<UpgradedUpstream> {
        match self.source {
            BodySource::Connection(connection) => {
                Some(UpgradedUpstream { arrived: self.arrived, transport: connection.transport })
            }
            BodySource::Early(_) | BodySource::Gone => None,
        }
    }

    /// Releases the connection if the body has ended. It is closed if bytes are left, which could pass for the next
    /// response.
    pub(crate) fn release_at_end(&mut self) {
        if !matches!(self.left, BodyLeft::Nothing) {
            return;
        }
        let source = std::mem::replace(&mut self.source, BodySource::Gone);
        if let (BodySource::Connection(connection), Some(pool), true) =
            (source, self.pool.take(), self.arrived.is_empty())
        {
            pool.put_idle(connection);
        }
    }

    /// The next frame, from bytes that have arrived already.
    fn next(&mut self) -> Result<Option<Frame<Bytes>>, IncompleteBody> {
        let data = match &mut self.left {
            BodyLeft::Nothing => return Ok(None),
            BodyLeft::Exact(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(self.arrived.len());
                *left -= taken as u64;
                if *left == 0 {
                    self.left = BodyLeft::Nothing;
                }
                self.arrived.split_to(taken)
            }
            BodyLeft::UntilClose => std::mem::take(&mut self.arrived),
            BodyLeft::Chunked(chunked) => {
                let step = chunked.step(&mut self.arrived).map_err(|_| IncompleteBody)?;
                if chunked.has_ended() {
                    self.left = BodyLeft::Nothing;
                }
                match step {
                    ChunkStep::Data(data) => data,
                    ChunkStep::Trailers(trailers) => return Ok(Some(Frame::trailers(trailers))),
                    ChunkStep::End | ChunkStep::NeedsMore => return Ok(None),
                }
            }
        };
        Ok(Some(Frame::data(data)).filter(|frame| frame.data_ref().is_none_or(|data| !data.is_empty())))
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), IncompleteBody>> {
        let at_most = self.read_at_most;
        let (read, idle): (_, &mut IdleTimer) = match &mut self.source {
            BodySource::Connection(connection) => {
                (poll_bytes(&mut connection.transport, cx, at_most), &mut connection.idle)
            }
            BodySource::Early(early) => (poll_bytes(&mut early.reader, cx, at_most), &mut early.idle),
            BodySource::Gone => return Poll::Ready(Err(IncompleteBody)),
        };
        let Poll::Ready(read) = read else {
            return self.activity.poll_idle(idle, cx).map(|()| Err(IncompleteBody));
        };
        idle.reset();
        self.activity.record();
        self.arrived = read.map_err(|_| IncompleteBody)?;
        if self.arrived.is_empty() {
            let BodyLeft::UntilClose = self.left else { return Poll::Ready(Err(IncompleteBody)) };
            (self.left, self.pool) = (BodyLeft::Nothing, None);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, IncompleteBody>> {
        loop {
            if let Some(frame) = self.next()? {
                return Poll::Ready(Ok(Some(frame)));
            }
            if matches!(self.left, BodyLeft::Nothing) {
                return Poll::Ready(Ok(None));
            }
            ready!(self.poll_more(cx))?;
        }
    }
}

impl Body for Http1Body {
    type Data = Bytes;
    type Error = IncompleteBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncompleteBody>>> {
        let next = ready!(self.poll_next(cx));
        if next.is_err() {
            (self.source, self.left) = (BodySource::Gone, BodyLeft::Nothing);
        }
        self.release_at_end();
        Poll::Ready(next.transpose())
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.left, BodyLeft::Nothing)
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            BodyLeft::Nothing => SizeHint::with_exact(0),
            BodyLeft::Exact(bytes) => SizeHint::with_exact(bytes),
            BodyLeft::Chunked(_) | BodyLeft::UntilClose => SizeHint::default(),
        }
    }
}
