//! A client's socket, which also reports when the client has hung up.
//!
//! A read finds the end of the connection only behind all bytes that were sent before it. A protocol that does not read
//! for a while, because it still answers an earlier request or because a body is not taken, would not notice that the
//! client has gone. The kernel reports it at once. Two owners share the socket for this: one reads and writes, the
//! other waits for the report.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Resolves when the other side is closed, and not when bytes arrive. tokio reports a closed side with every interest
/// in reading, of which this one has no other event: no socket of a listener asks for urgent data.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOSED: Interest = Interest::PRIORITY;
/// Other systems report only a reset.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOSED: Interest = Interest::ERROR;

/// With epoll, a read of less than there was room for has emptied the socket, and a write of less than there was has filled
/// it; later changes are reported. That spares tokio another call that fails.
const SHORT_IS_LAST: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// A client's TCP connection.
#[derive(Debug)]
pub(crate) struct ClientSocket(Arc<TcpStream>);

/// Tells when a client has hung up.
#[derive(Clone, Debug)]
pub struct HangUp(Arc<TcpStream>);

impl ClientSocket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    pub(crate) fn hang_up(&self) -> HangUp {
        HangUp(Arc::clone(&self.0))
    }

    /// Reads or writes once, up to `most` bytes. Fails with [`ErrorKind::WouldBlock`] if that has to wait.
    fn try_once(
        &self,
        interest: Interest,
        most: usize,
        mut once: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut moved = 0;
        // The outer call has noted what was reported before the inner one. If nothing new is reported meanwhile, it takes
        // the error to mean that the socket is empty, or full.
        let outcome = self.0.try_io(interest, || {
            moved = once(&self.0)?;
            let is_short = (1..most).contains(&moved);
            if SHORT_IS_LAST && is_short { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        if moved > 0 { Ok(moved) } else { outcome.map(|()| 0) }
    }

    /// Writes when the socket has room.
    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.try_once(Interest::WRITABLE, most, &write) {
                Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl HangUp {
    /// Resolves once the client has closed its side of the connection or has reset it, even if bytes that it sent
    /// before have not been read.
    pub async fn heard(&self) {
        // An error means that the runtime is shutting down, which ends the connection too.
        let _closed = self.0.ready(CLOSED).await;
    }

    /// Whether that has been reported. The runtime learns of it while a task waits or yields.
    pub fn is_heard(&self) -> bool {
        pin!(self.heard()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Whether the client has reset the connection since this was last asked, as its system does if bytes arrive that no
    /// program will read. A read does not report it if the client had closed its side before.
    pub fn is_reset(&self) -> bool {
        !matches!(self.0.take_error(), Ok(None))
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            let room = buffer.remaining();
            match self.try_once(Interest::READABLE, room, |stream| stream.try_read_buf(buffer)) {
                Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, bytes.len(), |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let most = slices.iter().map(|slice| slice.len()).sum();
        self.poll_write_with(cx, most, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match SockRef::from(&*self.0).shutdown(Shutdown::Write) {
            // The client has reset the connection.
            Err(why) if why.kind() == ErrorKind::NotConnected => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_test::{assert_pending, task};

    use super::*;

    async fn pair() -> (TcpStream, ClientSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("its address")).await.expect("a client");
        let (stream, _) = listener.accept().await.expect("its socket");
        (client, ClientSocket::new(stream))
    }

    async fn in_time<T>(wait: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(10), wait).await.expect("it takes no time")
    }

    async fn readable(socket: &ClientSocket) {
        in_time(poll_fn(|cx| socket.0.poll_read_ready(cx))).await.expect("bytes");
    }

    #[tokio::test]
    async fn a_hang_up_is_heard_behind_unread_bytes_and_they_can_still_be_read() {
        for reset in [false, true] {
            let (mut client, mut socket) = pair().await;
            let hang_up = socket.hang_up();
            let mut heard = task::spawn(hang_up.heard());
            assert_pending!(heard.poll());
            client.write_all(b"hello").await.expect("room");
            readable(&socket).await;
            assert!(!heard.is_woken(), "bytes are no hang-up");
            assert_pending!(heard.poll());
            if reset {
                client.set_zero_linger().expect("a socket");
            }
            assert!(!hang_up.is_heard());
            drop(client);
            in_time(heard).await;
            assert!(hang_up.is_heard());
            let mut rest = Vec::new();
            let read = in_time(socket.read_to_end(&mut rest)).await;
            assert_eq!((read.is_err(), &rest[..]), (reset, &b"hello"[..]));
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn bytes_that_a_client_did_not_wait_for_are_reported_behind_its_hang_up() {
        for waits in [true, false] {
            let (mut client, mut socket) = pair().await;
            let hang_up = socket.hang_up();
            if waits {
                socket.write_all(b"reply").await.expect("room");
                in_time(client.read_exact(&mut [0; 5])).await.expect("a reply");
            }
            drop(client);
            in_time(hang_up.heard()).await;
            if !waits {
                socket.write_all(b"reply").await.expect("the client may only have closed its side");
            }
            assert_eq!(in_time(socket.read(&mut [0; 8])).await.expect("the end"), 0);
            assert_eq!(hang_up.is_reset(), !waits);
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_socket_that_a_short_read_has_emptied_is_not_read_again_until_more_arrives() {
        let (mut client, mut socket) = pair().await;
        for word in [b"hello", b"again"] {
            client.write_all(word).await.expect("room");
            let mut space = [0; 64];
            assert_eq!(in_time(socket.read(&mut space)).await.expect("bytes"), word.len());
            assert_eq!(space[..word.len()], word[..]);
            assert_pending!(task::spawn(poll_fn(|cx| socket.0.poll_read_ready(cx))).poll());
        }
    }

    #[tokio::test]
    async fn bytes_pass_whole_both_ways_whatever_fits_into_the_buffers() {
        let (client, mut socket) = pair().await;
        let sent: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
        let (mut from, mut to) = client.into_split();
        let echo = tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
        let (mut reads, mut writes) = tokio::io::split(&mut socket);
        let write = async {
            writes.write_all(&sent).await.expect("room");
            writes.shutdown().await.expect("a client");
        };
        let read = async {
            let (mut all, mut size) = (Vec::new(), 1);
            loop {
                // Buffers of all sizes: filled, and larger than what has arrived.
                let mut piece = vec![0; size];
                match reads.read(&mut piece).await.expect("bytes") {
                    0 => return all,
                    bytes => all.extend_from_slice(&piece[..bytes]),
                }
                size = size % 100_000 + 997;
            }
        };
        let ((), read) = in_time(async { tokio::join!(write, read) }).await;
        assert!(read == sent, "the same bytes in the same order");
        in_time(echo).await.expect("a task").expect("an echo");
    }
}
