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
use tokio::sync::Notify;
use tokio::time::Instant;

use super::headers::requested_upgrade;
use crate::upstream::UpgradedUpstream;

/// How long a WebSocket may be silent after its client has closed it: WebSocket has no half-open connections, so the client is gone.
const CLIENT_GONE_WITHIN: Duration = Duration::from_millis(50);

/// How long a WebSocket may be silent after its upstream has closed it. The client has to read the bytes in flight, and to close the
/// connection, too: an earlier reset could discard bytes that it has not read.
const UPSTREAM_GONE_WITHIN: Duration = Duration::from_secs(2);

/// A client's request to switch its connection to another protocol.
pub(crate) struct UpgradeRequest {
    protocol: HeaderValue,
    client: OnUpgrade,
}

impl UpgradeRequest {
    /// The request to switch, if there is one and the route allows the protocol. Otherwise it is removed with the
    /// hop-by-hop fields: an upstream that switched protocols unnoticed would be out of reach of every rule.
    pub(crate) fn from_request(request: &mut Parts, allowed: &[Box<str>]) -> Option<Self> {
        let protocol = allowed_protocol(request, allowed)?.clone();
        let client = request.extensions.remove::<OnUpgrade>()?;
        Some(Self { protocol, client })
    }

    /// Whether the request asks to switch to a protocol that the route allows.
    pub(crate) fn is_in(request: &Parts, allowed: &[Box<str>]) -> bool {
        request.extensions.get::<OnUpgrade>().is_some() && allowed_protocol(request, allowed).is_some()
    }

    /// Writes the fields: in a request to the upstream, and in the response to the client.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocol.clone());
    }

    /// How long a tunnel may be silent.
    fn silence(&self, max_idle: Duration) -> TunnelSilence {
        let is_websocket = self.protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
        let within = |most: Duration| if is_websocket { max_idle.min(most) } else { max_idle };
        TunnelSilence {
            open: max_idle,
            client_closed: within(CLIENT_GONE_WITHIN),
            upstream_closed: within(UPSTREAM_GONE_WITHIN),
        }
    }
}

/// The protocol that the request asks for, if the route allows it.
fn allowed_protocol<'r>(request: &'r Parts, allowed: &[Box<str>]) -> Option<&'r HeaderValue> {
    let protocol = requested_upgrade(&request.headers)?;
    let name = protocol.to_str().ok()?;
    allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)).then_some(protocol)
}

/// How long a tunnel may be silent before it ends.
#[derive(Clone, Copy)]
struct TunnelSilence {
    /// While both sides may send.
    open: Duration,
    /// After the client has closed, and the upstream was notified. The limit stays the same for protocols in which a side may finish
    /// sending and wait for a long answer, like commands that read their input to its end.
    client_closed: Duration,
    /// After the upstream has closed, and the client was notified.
    upstream_closed: Duration,
}

/// Copies bytes between client and upstream, after the upgrade, until both have closed, one of them has broken off, or
/// neither has sent anything for too long. Adds the bytes of both directions to `passed` as they come.
pub(crate) async fn tunnel(
    upgrade: UpgradeRequest,
    upstream: UpgradedUpstream,
    max_idle: Duration,
    passed: &AtomicU64,
) {
    let silence = upgrade.silence(max_idle);
    let Ok(client) = upgrade.client.await else { return };
    relay(TokioIo::new(client), upstream, silence, passed).await;
}

async fn relay(
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
    silence: TunnelSilence,
    passed: &AtomicU64,
) {
    let activity = LastActivity::default();
    let (client_closed, upstream_closed) = (Notify::new(), Notify::new());
    let mut client =
        TimedStream { stream: client, activity: &activity, passed, other_closed: &upstream_closed };
    let mut upstream =
        TimedStream { stream: upstream, activity: &activity, passed, other_closed: &client_closed };
    tokio::select! {
        // An error ends the tunnel like a close of both sides does.
        _ = copy_bidirectional(&mut client, &mut upstream) => {}
        () = idle_timeout(&activity, silence.open) => {}
        () = half_closed_timeout(&activity, &client_closed, silence.client_closed) => {}
        () = half_closed_timeout(&activity, &upstream_closed, silence.upstream_closed) => {}
    }
}

/// Resolves once no bytes have moved for `max_idle` after a side has closed.
async fn half_closed_timeout(activity: &LastActivity, closed: &Notify, max_idle: Duration) {
    closed.notified().await;
    idle_timeout(activity, max_idle).await;
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

impl Default for LastActivity {
    fn default() -> Self {
        Self { start: Instant::now(), after_us: AtomicU64::new(0) }
    }
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

/// A stream that records when bytes are read from it, and when the other side has nothing more to write to it.
struct TimedStream<'c, T> {
    stream: T,
    activity: &'c LastActivity,
    /// Bytes that were read, from either side.
    passed: &'c AtomicU64,
    /// Notified when the other side has closed, and all its bytes have been written to this one.
    other_closed: &'c Notify,
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedStream<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.passed.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
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
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        if shut.is_ready() {
            self.activity.record();
            self.other_closed.notify_one();
        }
        shut
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    const MAX_IDLE: Duration = Duration::from_secs(60);

    /// A tunnel of this protocol, its client, and its upstream.
    fn open(protocol: &'static str) -> (JoinHandle<()>, DuplexStream, DuplexStream) {
        let (client, near) = duplex(64);
        let (far, upstream) = duplex(64);
        let mut request = http::Request::new(());
        let client_end = hyper::upgrade::on(&mut request);
        let upgrade = UpgradeRequest { protocol: HeaderValue::from_static(protocol), client: client_end };
        let silence = upgrade.silence(MAX_IDLE);
        let tunnel = tokio::spawn(async move { relay(near, far, silence, &AtomicU64::new(0)).await });
        (tunnel, client, upstream)
    }

    /// How long the tunnel stays open.
    async fn ends(tunnel: JoinHandle<()>) -> Duration {
        let start = Instant::now();
        tunnel.await.unwrap();
        start.elapsed()
    }

    fn about(took: Duration, expected: Duration) {
        assert!(took.abs_diff(expected) < Duration::from_millis(10), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_websocket_ends_soon_after_one_side_has_closed_it_though_the_other_ignores_that() {
        for (by_client, within) in [(true, CLIENT_GONE_WITHIN), (false, UPSTREAM_GONE_WITHIN)] {
            let (tunnel, client, upstream) = open("WebSocket");
            let (mut closing, mut other) = if by_client { (client, upstream) } else { (upstream, client) };
            closing.write_all(b"bye").await.unwrap();
            closing.shutdown().await.unwrap();
            let mut heard = String::new();
            other.read_to_string(&mut heard).await.unwrap();
            assert_eq!(heard, "bye");
            about(ends(tunnel).await, within);
        }
        let (tunnel, _client, _upstream) = open("websocket");
        about(ends(tunnel).await, MAX_IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_side_that_did_not_close_may_finish_what_it_says() {
        let (tunnel, mut client, mut upstream) = open("websocket");
        client.shutdown().await.unwrap();
        for _ in 0..10 {
            tokio::time::advance(CLIENT_GONE_WITHIN / 2).await;
            upstream.write_all(b"more").await.unwrap();
            client.read_exact(&mut [0; 4]).await.unwrap();
        }
        drop(upstream);
        about(ends(tunnel).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_side_sent_before_it_closed_is_not_cut_off_by_a_slow_reader() {
        let (tunnel, mut client, mut upstream) = open("websocket");
        client.write_all(&[b'x'; 150]).await.unwrap();
        client.shutdown().await.unwrap();
        tokio::time::sleep(CLIENT_GONE_WITHIN * 3).await;
        let mut heard = Vec::new();
        upstream.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard.len(), 150);
        about(ends(tunnel).await, CLIENT_GONE_WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn another_protocol_may_wait_for_an_answer_as_long_as_a_tunnel_may_be_silent() {
        let (tunnel, mut client, mut upstream) = open("tcp");
        client.shutdown().await.unwrap();
        tokio::time::sleep(MAX_IDLE * 9 / 10).await;
        upstream.write_all(b"done").await.unwrap();
        client.read_exact(&mut [0; 4]).await.unwrap();
        about(ends(tunnel).await, MAX_IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_counts_from_what_moved_last() {
        let max_idle = Duration::from_secs(10);
        let activity = LastActivity::default();
        tokio::time::advance(Duration::from_secs(9)).await;
        activity.record();
        idle_timeout(&activity, max_idle).await;
        assert!(activity.start.elapsed().abs_diff(Duration::from_secs(19)) < Duration::from_millis(10));
    }
}
