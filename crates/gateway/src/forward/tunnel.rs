//! A connection that has become something else: bytes go both ways until one side is done.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::Instant;

use crate::upstream::Upgraded;

/// Carries bytes between a client and an upstream that have both switched, until either is done or both are silent.
pub(crate) async fn carry(client: OnUpgrade, upstream: Upgraded, max_idle: Duration) {
    let Ok(client) = client.await else { return };
    let moved = LastMove { start: Instant::now(), after_us: AtomicU64::new(0) };
    let mut client = Timed { stream: TokioIo::new(client), moved: &moved };
    let mut upstream = Timed { stream: upstream, moved: &moved };
    tokio::select! {
        // How it ends is between the two of them.
        _ = copy_bidirectional(&mut client, &mut upstream) => {}
        () = silence(&moved, max_idle) => {}
    }
}

/// Resolves once nothing has moved for so long.
async fn silence(moved: &LastMove, max_idle: Duration) {
    loop {
        let until = moved.at() + max_idle;
        if until <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}

/// When something last moved, either way.
struct LastMove {
    start: Instant,
    after_us: AtomicU64,
}

impl LastMove {
    fn at(&self) -> Instant {
        self.start + Duration::from_micros(self.after_us.load(Ordering::Relaxed))
    }

    fn note(&self) {
        let after_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.after_us.store(after_us, Ordering::Relaxed);
    }
}

/// A stream whose reads are noted.
struct Timed<'c, T> {
    stream: T,
    moved: &'c LastMove,
}

impl<T: AsyncRead + Unpin> AsyncRead for Timed<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.moved.note();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Timed<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silence_counts_from_what_moved_last() {
        let max_idle = Duration::from_secs(10);
        let moved = LastMove { start: Instant::now(), after_us: AtomicU64::new(0) };
        tokio::time::advance(Duration::from_secs(9)).await;
        moved.note();
        silence(&moved, max_idle).await;
        assert!(moved.start.elapsed().abs_diff(Duration::from_secs(19)) < Duration::from_millis(10));
    }
}
