//! Upgraded connections: the client's request, and the tunnel that carries bytes both ways.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::Instant;

use super::headers::requested_upgrade;
use crate::upstream::UpgradedUpstream;

/// A client's request to switch its connection to another protocol.
pub(crate) struct UpgradeRequest {
    protocol: HeaderValue,
    client: OnUpgrade,
}

impl UpgradeRequest {
    /// The request to switch, if there is one and the route allows the protocol. Otherwise it is removed with the
    /// hop-by-hop fields: an upstream that switched protocols unnoticed would be out of reach of every rule.
    pub(crate) fn from_request(request: &mut Parts, allowed: &[Box<str>]) -> Option<Self> {
        let protocol = requested_upgrade(&request.headers)?.clone();
        let name = protocol.to_str().ok()?;
        if !allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)) {
            return None;
        }
        let client = request.extensions.remove::<OnUpgrade>()?;
        Some(Self { protocol, client })
    }

    /// Writes the fields: in a request to the upstream, and in the response to the client.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocol.clone());
    }

    pub(crate) fn into_client(self) -> OnUpgrade {
        self.client
    }
}

/// Copies bytes between client and upstream, after the upgrade, until either closes or both are idle for too long.
pub(crate) async fn tunnel(client: OnUpgrade, upstream: UpgradedUpstream, max_idle: Duration) {
    let Ok(client) = client.await else { return };
    let activity = LastActivity { start: Instant::now(), after_us: AtomicU64::new(0) };
    let mut client = TimedStream { stream: TokioIo::new(client), activity: &activity };
    let mut upstream = TimedStream { stream: upstream, activity: &activity };
    tokio::select! {
        // An error ends the tunnel like a close does.
        _ = copy_bidirectional(&mut client, &mut upstream) => {}
        () = idle_timeout(&activity, max_idle) => {}
    }
}

/// Resolves once no bytes have moved for `max_idle`.
async fn idle_timeout(activity: &LastActivity, max_idle: Duration) {
    loop {
        let until = activity.last() + max_idle;
        if until <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}

/// When bytes last moved, in either direction.
struct LastActivity {
    start: Instant,
    after_us: AtomicU64,
}

impl LastActivity {
    fn last(&self) -> Instant {
        self.start + Duration::from_micros(self.after_us.load(Ordering::Relaxed))
    }

    fn record(&self) {
        let after_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.after_us.store(after_us, Ordering::Relaxed);
    }
}

/// A stream that records when bytes are read from it.
struct TimedStream<'c, T> {
    stream: T,
    activity: &'c LastActivity,
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedStream<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.activity.record();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimedStream<'_, T> {
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
        let activity = LastActivity { start: Instant::now(), after_us: AtomicU64::new(0) };
        tokio::time::advance(Duration::from_secs(9)).await;
        activity.record();
        idle_timeout(&activity, max_idle).await;
        assert!(activity.start.elapsed().abs_diff(Duration::from_secs(19)) < Duration::from_millis(10));
    }
}
