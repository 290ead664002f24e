//! A client's connection, with what HTTP itself does not bound: how long a client may take to show which HTTP it
//! speaks, how long it may ask for nothing over HTTP/2, how long it may leave an answer unread, and requests that have
//! two ends. It holds its place among all connections until it is closed, whatever it has become by then.
//!
//! hyper's own header timeout starts once the version is known, and knows HTTP/1 only. Whoever sends nothing, half of
//! HTTP/2's preface, or all of it and then only answers pings, would otherwise keep a connection for good, and so would
//! whoever asks and then never reads.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrayvec::ArrayVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::bounds::Bounds;
use crate::framing::{Ambiguity, Framing};
use crate::idle::Idle;
use crate::linger::Linger;
use crate::listener::Place;
use crate::streams::Streams;

/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Up to so many bytes, putting pieces together costs less than having the kernel collect them.
const WORTH_JOINING: usize = 2048;

/// A stream that fails unless it shows its version in time, and when what is written to it stays unread for too long.
#[derive(Debug)]
pub(crate) struct ClientStream<I> {
    stream: I,
    idle_within: Duration,
    /// Gone once the version is known.
    patience: Option<Pin<Box<Sleep>>>,
    /// What was read to find out the version, and is still to be served.
    first: ArrayVec<u8, { PREFACE.len() }>,
    matched: usize,
    unread: Idle,
    framing: Framing,
    rest: Option<Rest>,
    /// From when this side is closed.
    linger: Option<Box<Linger>>,
    /// Given back with the stream, which a tunnel takes along.
    place: Option<Place>,
}

/// What tells that nothing is asked for over HTTP/2.
#[derive(Debug)]
struct Rest {
    streams: Streams,
    /// How many streams and parts of answers there had been when this was last looked at.
    seen: (u32, u32),
    idle: Idle,
}

impl Rest {
    /// Ready once there has been no stream for too long, and nothing of an answer was taken. Whatever else arrives does
    /// not count; only what has just `arrived`, which may be a request, gets as long again.
    fn poll_over(&mut self, cx: &mut Context<'_>, arrived: bool) -> Poll<()> {
        let now = (self.streams.ever(), self.streams.writes());
        if self.streams.any() || std::mem::replace(&mut self.seen, now) != now {
            self.idle.stir();
        }
        if self.streams.any() {
            return Poll::Pending;
        }
        ready!(self.idle.poll_over(cx));
        if arrived && !self.idle.is_twice_over() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl<I> ClientStream<I> {
    /// The stream, which must show its version and take what is written within these bounds.
    pub(crate) fn new(stream: I, bounds: &Bounds) -> Self {
        Self {
            stream,
            idle_within: bounds.header_timeout,
            patience: Some(Box::pin(sleep(bounds.header_timeout))),
            first: ArrayVec::new(),
            matched: 0,
            unread: Idle::after(bounds.write_timeout),
            framing: Framing::new(),
            rest: None,
            linger: None,
            place: None,
        }
    }

    /// The same, which over HTTP/2 must not go without streams for longer than that either.
    pub(crate) fn resting(mut self, streams: Streams) -> Self {
        self.rest = Some(Rest { streams, seen: (0, 0), idle: Idle::after(self.idle_within) });
        self
    }

    /// Whether the client speaks HTTP/2, once its first bytes show that. One that hangs up before has shown nothing, and
    /// is left to HTTP/1.
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

    /// The same, which keeps this place until it is dropped.
    pub(crate) fn holding(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Tells which request has two ends, once it has arrived.
    pub(crate) fn ambiguity(&self) -> Ambiguity {
        self.framing.found()
    }

    /// Reads more of the first bytes. Says how many.
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

    /// Looks at what arrived first: a byte that differs from the preface is HTTP/1, and all of it is HTTP/2.
    fn look(&mut self, arrived: &[u8]) {
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

    /// The same for bytes, which may be those of an answer.
    fn taken_bytes(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let (Some(rest), Poll::Ready(Ok(bytes))) = (&self.rest, &written) {
            rest.streams.wrote(*bytes);
        }
        self.taken(cx, written)
    }

    fn timed_out(&self) -> io::Error {
        if let Some(place) = &self.place {
            place.timed_out();
        }
        io::ErrorKind::TimedOut.into()
    }

    /// Fails where nothing could be written for too long.
    fn taken<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread.stir();
        } else if self.unread.poll_over(cx).is_ready() {
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
        if read.is_ready() {
            let arrived = &buffer.filled()[before..];
            this.framing.read(arrived);
            if this.patience.is_some() {
                this.look(arrived);
            }
        } else if let Some(patience) = &mut this.patience
            && patience.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(this.timed_out()));
        }
        if let Some(rest) = &mut this.rest
            && this.matched == PREFACE.len()
            && rest.poll_over(cx, read.is_ready()).is_ready()
        {
            return Poll::Ready(Err(this.timed_out()));
        }
        read
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.taken_bytes(cx, written)
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
        self.taken_bytes(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // Nothing to flush says nothing about what is still unwritten.
        if flushed.is_pending() { self.taken(cx, flushed) } else { flushed }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.taken(cx, shut))?;
        }
        let this = &mut *self;
        let speaks_http_2 = this.matched == PREFACE.len();
        if speaks_http_2 || !this.framing.expects_more() {
            return Poll::Ready(Ok(()));
        }
        this.linger.get_or_insert_default().poll_over(cx, &mut this.stream).map(Ok)
    }
}
