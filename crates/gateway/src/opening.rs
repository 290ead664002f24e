//! The first bytes of a connection, which tell HTTP/1 from HTTP/2, and a limit on how long they may take.
//!
//! hyper's own header timeout starts once the version is known. Whoever sends nothing, or half of HTTP/2's preface,
//! would otherwise keep a connection for good.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream that fails unless it shows its version in time. After that it is the stream itself.
#[derive(Debug)]
pub struct Opening<I> {
    stream: I,
    /// Gone once the version is known.
    patience: Option<Pin<Box<Sleep>>>,
    matched: usize,
}

impl<I> Opening<I> {
    /// The stream, which must show its version within this time.
    pub fn new(stream: I, within: Duration) -> Self {
        Self { stream, patience: Some(Box::pin(sleep(within))), matched: 0 }
    }

    /// Looks at what arrived: a byte that differs from the preface is HTTP/1, and all of it is HTTP/2.
    fn look(&mut self, arrived: &[u8]) {
        let expected = &PREFACE[self.matched..];
        let same = arrived.iter().zip(expected).take_while(|(found, wanted)| found == wanted).count();
        self.matched += same;
        if same < arrived.len() || self.matched == PREFACE.len() {
            self.patience = None;
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Opening<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let this = &mut *self;
        if let Some(patience) = &mut this.patience {
            if read.is_ready() {
                this.look(&buffer.filled()[before..]);
            } else if patience.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Opening<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
