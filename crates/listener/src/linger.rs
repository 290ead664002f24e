//! A connection that is closed while its client still sends.
//!
//! The kernel answers what arrives on a closed connection by a reset, and a client that meets one while it sends mostly
//! does not read what it was told before: a 413 would look like a broken connection. So this side stops writing, and what
//! still arrives is read and dropped for a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};

use crate::deadline::Deadline;
use crate::idle::Idle;

/// Bytes that are dropped at most: as many as a route takes by default, and as many again.
const MAX_BYTES: usize = 128 << 20;
/// How long a client may take to finish, and how long it may be silent before that. As in nginx.
const WITHIN: Duration = Duration::from_secs(30);
const MAX_IDLE: Duration = Duration::from_secs(5);

/// Bytes that are read at once.
const PIECE: usize = 16 * 1024;
/// Pieces that are read before other connections get their turn.
const TURN: usize = 16;

/// What a closed connection waits for.
#[derive(Debug)]
pub(crate) struct Linger {
    bytes_left: usize,
    deadline: Deadline,
    idle: Idle,
}

impl Default for Linger {
    fn default() -> Self {
        let (deadline, idle) = (Deadline::after(Some(WITHIN)), Idle::after(MAX_IDLE));
        Self { bytes_left: MAX_BYTES, deadline, idle }
    }
}

impl Linger {
    /// Drops what arrives. Ready once the client is done, or has sent too much or for too long.
    pub(crate) fn poll_over(
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
                    self.idle.stir();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    let is_silent = self.idle.poll_over(cx).is_ready();
                    return if is_silent { Poll::Ready(()) } else { self.deadline.poll_over(cx) };
                }
            }
        }
        cx.waker().wake_by_ref();
        self.deadline.poll_over(cx)
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
        poll_fn(|cx| linger.poll_over(cx, stream)).await;
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
