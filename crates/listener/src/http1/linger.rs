//! Closes a connection whose client is still sending.
//!
//! The kernel answers bytes that arrive on a closed connection with a reset. A client that gets a reset while it sends
//! usually does not read the response before it: a 413 would look like a broken connection. So this side only stops
//! writing, and for a while reads and drops what still arrives.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};

use crate::timer::{Deadline, IdleTimer};

/// The most bytes that are dropped: twice the default body size of a route.
const MAX_BYTES: usize = 128 << 20;
/// How long a client may take to finish, and how long it may be silent. The same as in nginx.
const WITHIN: Duration = Duration::from_secs(30);
const MAX_IDLE: Duration = Duration::from_secs(5);

/// How many bytes are read at once.
const PIECE: usize = 16 * 1024;
/// How many pieces are read before the task yields to other connections.
const TURN: usize = 16;

/// The state of a connection that is closed on this side.
#[derive(Debug)]
pub(crate) struct Linger {
    bytes_left: usize,
    deadline: Deadline,
    idle: IdleTimer,
}

impl Default for Linger {
    fn default() -> Self {
        let (deadline, idle) = (Deadline::after(Some(WITHIN)), IdleTimer::after(MAX_IDLE));
        Self { bytes_left: MAX_BYTES, deadline, idle }
    }
}

impl Linger {
    /// Drops what arrives. Ready when the client is done, or has sent too much or for too long.
    pub(crate) fn poll_expired(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Poll<()> {
        let mut piece = [0; PIECE];
        for _ in 0..TURN {
            let mut space = ReadBuf::new(&mut piece);
            match Pin::new(&mut *stream).poll_read(cx, &mut space) {
                Poll::Ready(Ok(())) if !space.filled().is_empty() => {
                    let Some(left) = self.bytes_left.checked_sub(space.filled().len()) else {
                        return Poll::Ready(());
                    };
                    self.bytes_left = left;
                    self.idle.reset();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    let is_silent = self.idle.poll_expired(cx).is_ready();
                    return if is_silent { Poll::Ready(()) } else { self.deadline.poll_expired(cx) };
                }
            }
        }
        cx.waker().wake_by_ref();
        self.deadline.poll_expired(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt, duplex, repeat};
    use tokio::time::Instant;

    use super::*;

    async fn over(stream: &mut (impl AsyncRead + Unpin)) -> Duration {
        let (start, mut linger) = (Instant::now(), Linger::default());
        poll_fn(|cx| linger.poll_expired(cx, stream)).await;
        start.elapsed()
    }

    fn about(took: Duration, expected: Duration) {
        assert!(took.abs_diff(expected) <= Duration::from_secs(1), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_over_once_the_client_is_done() {
        let (mut client, mut stream) = duplex(1024);
        let sent = tokio::spawn(async move { client.write_all(&vec![b'x'; 1_000_000]).await });
        about(over(&mut stream).await, Duration::ZERO);
        sent.await.unwrap().expect("all of it is read");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_not_waited_for_without_end() {
        let (mut client, mut stream) = duplex(1024);
        about(over(&mut stream).await, MAX_IDLE);
        tokio::spawn(async move {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        about(over(&mut stream).await, WITHIN);
        about(over(&mut repeat(b'x')).await, Duration::ZERO);
    }
}
