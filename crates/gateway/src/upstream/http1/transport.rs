//! The bytes under HTTP/1.1: TCP, TLS over it, or a socket in the file system.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop::unconstrained;
use tokio_rustls::client::TlsStream;

use super::read_buffer::Buffer;

/// A connection.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// A connection that no longer speaks HTTP, and what had arrived on it by then.
#[derive(Debug)]
pub(crate) struct Upgraded {
    pub(super) arrived: Bytes,
    pub(super) transport: Transport,
}

impl Transport {
    /// Whether the other side has said nothing since, not even that it hangs up. Anything it says unasked makes the
    /// connection useless: it would be taken for the answer to the next request.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let look = poll_fn(|cx| Pin::new(&mut *self).poll_read(cx, &mut ReadBuf::new(&mut byte)));
        // A task that has used up tokio's budget is told that there is nothing to read, whatever there is.
        pin!(unconstrained(look)).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }
}

/// What has arrived, up to so many bytes. Nothing is the end.
pub(super) fn poll_bytes(
    reader: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    at_most: usize,
) -> Poll<io::Result<Bytes>> {
    let mut buffer = Buffer::take(at_most);
    let whole = buffer.space();
    let within = at_most.min(whole.len());
    let mut space = ReadBuf::new(&mut whole[..within]);
    ready!(Pin::new(reader).poll_read(cx, &mut space))?;
    let bytes = space.filled().len();
    Poll::Ready(Ok(buffer.into_bytes(bytes)))
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.arrived.is_empty() {
            return Pin::new(&mut self.transport).poll_read(cx, buffer);
        }
        let taken = self.arrived.len().min(buffer.remaining());
        buffer.put_slice(&self.arrived[..taken]);
        self.arrived.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// More looks than tokio lets one task make at a time.
    const MANY: usize = 200;

    #[tokio::test]
    async fn a_closed_connection_is_seen_however_many_were_looked_at_before() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut parked = Vec::new();
        for _ in 0..MANY {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (upstream, _) = listener.accept().await.unwrap();
            let mut transport = Transport::Plain(stream);
            assert!(transport.is_quiet());
            drop(upstream);
            let Transport::Plain(stream) = &transport else { unreachable!("it is plain") };
            stream.readable().await.unwrap();
            parked.push(transport);
        }
        // All looks are made in one turn of this task, which starts here.
        tokio::task::yield_now().await;
        let quiet = parked.iter_mut().map(Transport::is_quiet).filter(|quiet| *quiet).count();
        assert_eq!(quiet, 0);
    }
}
