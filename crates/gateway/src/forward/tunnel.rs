//! A connection that has become something else: bytes go both ways until one side is done.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

use crate::upstream::Upgraded;

/// Carries bytes between a client and an upstream that have both switched, until either is done or both are silent.
pub(crate) async fn carry(client: OnUpgrade, upstream: Upgraded, max_idle: Duration) {
    let Ok(client) = client.await else { return };
    let moved = AtomicU64::new(0);
    let mut client = Counted { stream: TokioIo::new(client), moved: &moved };
    let mut upstream = Counted { stream: upstream, moved: &moved };
    tokio::select! {
        // How it ends is between the two of them.
        _ = copy_bidirectional(&mut client, &mut upstream) => {}
        () = silence(&moved, max_idle) => {}
    }
}

/// Resolves once nothing has moved for so long.
async fn silence(moved: &AtomicU64, max_idle: Duration) {
    loop {
        let before = moved.load(Ordering::Relaxed);
        tokio::time::sleep(max_idle).await;
        if moved.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

/// A stream whose reads are counted.
struct Counted<'c, T> {
    stream: T,
    moved: &'c AtomicU64,
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<'_, T> {
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
