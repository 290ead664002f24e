//! The byte stream under HTTP/1.1: TCP, TLS or a Unix socket.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop::unconstrained;
use tokio_rustls::client::TlsStream;

use super::read_buffer::ReadBuffer;

/// The byte stream of a connection.
#[derive(Debug)]
pub(crate) enum UpstreamIo {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// A connection that has switched to another protocol, and the bytes that had already arrived.
#[derive(Debug)]
pub(crate) struct UpgradedUpstream {
    pub(super) arrived: Bytes,
    pub(super) transport: UpstreamIo,
}

impl UpstreamIo {
    /// Whether the upstream has sent nothing and not closed the connection. Bytes that it sends without a request make
    /// the connection useless: they would be taken for the response to the next request.
    pub(super) fn is_idle(&mut self) -> bool {
        let mut byte = [0];
        let look = poll_fn(|cx| Pin::new(&mut *self).poll_read(cx, &mut ReadBuf::new(&mut byte)));
        // Without `unconstrained`, a task that has used up tokio's budget would always get `Pending`.
        pin!(unconstrained(look)).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }
}

/// Reads the bytes that have arrived, up to this many. Empty at the end.
pub(super) fn poll_bytes(
    reader: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    at_most: usize,
) -> Poll<io::Result<Bytes>> {
    let mut buffer = ReadBuffer::take(at_most);
    let whole = buffer.space();
    let within = at_most.min(whole.len());
    let mut space = ReadBuf::new(&mut whole[..within]);
    ready!(Pin::new(reader).poll_read(cx, &mut space))?;
    let bytes = space.filled().len();
    Poll::Ready(Ok(buffer.into_bytes(bytes)))
}

/// Calls a method of whichever stream it is.
macro_rules! delegate {
    ($io:expr, $method:ident($($argument:expr),*)) => {
        match $io.get_mut() {
            UpstreamIo::Plain(stream) => Pin::new(stream).$method($($argument),*),
            UpstreamIo::Tls(stream) => Pin::new(stream).$method($($argument),*),
            UpstreamIo::Unix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for UpstreamIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self, poll_read(cx, buffer))
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_shutdown(cx))
    }
}

impl AsyncRead for UpgradedUpstream {
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

impl AsyncWrite for UpgradedUpstream {
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

    /// More polls than tokio's budget allows one task.
    const MANY: usize = 200;

    #[tokio::test]
    async fn a_closed_connection_is_seen_however_many_were_looked_at_before() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut idle = Vec::new();
        for _ in 0..MANY {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (upstream, _) = listener.accept().await.unwrap();
            let mut transport = UpstreamIo::Plain(stream);
            assert!(transport.is_idle());
            drop(upstream);
            let UpstreamIo::Plain(stream) = &transport else { unreachable!("it is plain") };
            stream.readable().await.unwrap();
            idle.push(transport);
        }
        // All polls happen in one turn of this task, which starts here.
        tokio::task::yield_now().await;
        let quiet = idle.iter_mut().map(UpstreamIo::is_idle).filter(|quiet| *quiet).count();
        assert_eq!(quiet, 0);
    }
}
