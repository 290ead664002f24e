//! A client's connection, with the checks that hyper and h2 do not make: how long a client may take to show its version
//! of HTTP, how long an HTTP/2 connection may have no stream, how long a client may read nothing of a response, and
//! requests with two lengths. It holds its permit until it is closed, even if it becomes a tunnel.
//!
//! hyper's header timeout starts when the version is known, and only for HTTP/1. Without these checks a client could
//! keep a connection forever: by sending nothing, a part of the HTTP/2 preface, or the preface and then only answers to
//! pings; or by sending a request and never reading the response.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrayvec::ArrayVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::http1::{FirstAmbiguous, Linger, RequestFraming};
use crate::http2::StreamTracker;
use crate::listener::{Bounds, ClientIo, ConnectionPermit, HangUp};
use crate::timer::IdleTimer;

/// The first bytes of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Up to this many bytes, copying slices into one buffer costs less than a vectored write.
const WORTH_JOINING: usize = 2048;

/// A stream that fails if the client does not show its version in time, or reads nothing of a response for too long.
#[derive(Debug)]
pub(crate) struct ClientStream<I> {
    stream: I,
    idle_within: Duration,
    /// `None` once the version is known.
    patience: Option<Pin<Box<Sleep>>>,
    /// Bytes that were read to find out the version, and that the protocol has not read yet.
    first: ArrayVec<u8, { PREFACE.len() }>,
    matched: usize,
    unread: IdleTimer,
    paused: PausedReads,
    framing: RequestFraming,
    http2_idle: Option<Http2Idle>,
    /// Set when this side of the connection is closed.
    linger: Option<Box<Linger>>,
    /// Released with the stream, which lives on in a tunnel.
    permit: Option<ConnectionPermit>,
}

/// Whether the protocol has stopped reading before it had read everything. Then it does not notice by itself that the
/// client has hung up.
#[derive(Clone, Debug, Default)]
pub(crate) struct PausedReads(Arc<AtomicBool>);

/// Finds HTTP/2 connections without streams.
#[derive(Debug)]
struct Http2Idle {
    streams: StreamTracker,
    /// The stream count and the write count of the last poll.
    seen: (u32, u32),
    idle: IdleTimer,
}

impl PausedReads {
    fn set(&self, paused: bool) {
        self.0.store(paused, Ordering::Relaxed);
    }

    /// Runs a connection. Ends it early if its client hangs up while reads are paused.
    ///
    /// The check comes after the connection has done what it could, so that an answer that is there is sent.
    pub(crate) async fn until_hang_up(&self, hang_up: &HangUp, connection: impl Future) {
        let (mut connection, mut heard) = (pin!(connection), pin!(hang_up.heard()));
        poll_fn(|cx| match connection.as_mut().poll(cx) {
            Poll::Pending if self.0.load(Ordering::Relaxed) => heard.as_mut().poll(cx),
            polled => polled.map(drop),
        })
        .await;
    }
}

impl Http2Idle {
    /// Ready if there was no stream, and no part of a response was written, for too long. Other frames do not count as
    /// activity. If bytes have just `arrived`, which may be a request, the limit is doubled.
    fn poll_expired(&mut self, cx: &mut Context<'_>, arrived: bool) -> Poll<()> {
        let now = (self.streams.opened(), self.streams.writes());
        if self.streams.has_open() || std::mem::replace(&mut self.seen, now) != now {
            self.idle.reset();
        }
        if self.streams.has_open() {
            return Poll::Pending;
        }
        ready!(self.idle.poll_expired(cx));
        if arrived && !self.idle.is_twice_over() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl<I> ClientStream<I> {
    /// Wraps a stream, with the timeouts of these bounds.
    pub(crate) fn new(stream: I, bounds: &Bounds) -> Self {
        Self {
            stream,
            idle_within: bounds.header_timeout,
            patience: Some(Box::pin(sleep(bounds.header_timeout))),
            first: ArrayVec::new(),
            matched: 0,
            unread: IdleTimer::after(bounds.write_timeout),
            paused: PausedReads::default(),
            framing: RequestFraming::new(),
            http2_idle: None,
            linger: None,
            permit: None,
        }
    }

    /// Also fails if an HTTP/2 connection has no stream for longer than the header timeout.
    pub(crate) fn with_idle_check(mut self, streams: StreamTracker) -> Self {
        self.http2_idle = Some(Http2Idle { streams, seen: (0, 0), idle: IdleTimer::after(self.idle_within) });
        self
    }

    /// Whether the first bytes are the HTTP/2 preface. A client that closes the connection before that is treated as
    /// HTTP/1.
    pub(crate) async fn speaks_http2(&mut self) -> io::Result<bool>
    where
        I: AsyncRead + Unpin,
    {
        loop {
            if self.first.len() == PREFACE.len() || !PREFACE.starts_with(&self.first) {
                return Ok(*self.first == *PREFACE);
            }
            if poll_fn(|cx| self.poll_first(cx)).await? == 0 {
                return Ok(false);
            }
        }
    }

    /// Holds this permit until the stream is dropped.
    pub(crate) fn with_permit(mut self, permit: ConnectionPermit) -> Self {
        self.permit = Some(permit);
        self
    }

    /// Says which request of the connection is the first with an ambiguous length.
    pub(crate) fn ambiguity(&self) -> FirstAmbiguous {
        self.framing.ambiguous()
    }

    /// Says whether the protocol reads.
    pub(crate) fn paused_reads(&self) -> PausedReads {
        self.paused.clone()
    }

    /// Says when the client has hung up.
    pub(crate) fn hang_up(&self) -> HangUp
    where
        I: ClientIo,
    {
        self.stream.hang_up()
    }

    /// Reads more of the first bytes. Returns how many.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        I: AsyncRead + Unpin,
    {
        let mut space = [0; PREFACE.len()];
        let mut buffer = ReadBuf::new(&mut space[self.first.len()..]);
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        if read.is_pending()
            && let Some(patience) = &mut self.patience
            && patience.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(self.timed_out()));
        }
        ready!(read)?;
        self.first.extend(buffer.filled().iter().copied());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Compares the first bytes with the preface: a byte that differs means HTTP/1, the whole preface means HTTP/2.
    fn detect_version(&mut self, arrived: &[u8]) {
        let expected = &PREFACE[self.matched..];
        let same = arrived.iter().zip(expected).take_while(|(found, wanted)| found == wanted).count();
        self.matched += same;
        if self.matched == PREFACE.len() {
            self.framing.stop();
        }
        if same < arrived.len() || self.matched == PREFACE.len() {
            self.patience = None;
        }
    }

    /// As [`check_write`](Self::check_write), and counts the bytes, which may be those of a response.
    fn check_write_bytes(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let (Some(http2_idle), Poll::Ready(Ok(bytes))) = (&self.http2_idle, &written) {
            http2_idle.streams.record_write(*bytes);
        }
        self.check_write(cx, written)
    }

    fn timed_out(&self) -> io::Error {
        if let Some(permit) = &self.permit {
            permit.timed_out();
        }
        io::ErrorKind::TimedOut.into()
    }

    /// Turns a pending write into an error if nothing could be written for too long.
    fn check_write<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread.reset();
        } else if self.unread.poll_expired(cx).is_ready() {
            return Poll::Ready(Err(self.timed_out()));
        }
        written
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for ClientStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let read = if this.first.is_empty() {
            Pin::new(&mut this.stream).poll_read(cx, buffer)
        } else {
            let served = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first[..served]);
            drop(this.first.drain(..served));
            Poll::Ready(Ok(()))
        };
        // A protocol that has read the last byte asks for more, and is woken for what comes next. It knows of an end
        // that it has read.
        this.paused.set(buffer.filled().len() > before);
        if read.is_ready() {
            let arrived = &buffer.filled()[before..];
            this.framing.read(arrived);
            if this.patience.is_some() {
                this.detect_version(arrived);
            }
        } else if let Some(patience) = &mut this.patience
            && patience.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(this.timed_out()));
        }
        if let Some(http2_idle) = &mut this.http2_idle
            && this.matched == PREFACE.len()
            && http2_idle.poll_expired(cx, read.is_ready()).is_ready()
        {
            return Poll::Ready(Err(this.timed_out()));
        }
        read
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_write_bytes(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = if bytes <= WORTH_JOINING && slices.len() > 1 {
            let mut joined = ArrayVec::<u8, WORTH_JOINING>::new();
            for slice in slices {
                // There is room for all of them.
                let _fits = joined.try_extend_from_slice(slice);
            }
            Pin::new(&mut self.stream).poll_write(cx, &joined)
        } else {
            Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
        };
        self.check_write_bytes(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // A completed flush is no sign of progress: there may have been nothing to flush.
        if flushed.is_pending() { self.check_write(cx, flushed) } else { flushed }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Bytes that still arrive are read here.
        self.paused.set(false);
        if self.linger.is_none() {
            let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.check_write(cx, shut))?;
        }
        let this = &mut *self;
        let speaks_http_2 = this.matched == PREFACE.len();
        if speaks_http_2 || !this.framing.expects_more() {
            return Poll::Ready(Ok(()));
        }
        this.linger.get_or_insert_default().poll_expired(cx, &mut this.stream).map(Ok)
    }
}
