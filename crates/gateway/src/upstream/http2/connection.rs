//! An HTTP/2 connection to an upstream, and the streams on it.
//!
//! Pings are sent only when the result matters: on a new connection, before an idle one is used again, and after a
//! request got no response. gRPC servers treat pings without requests, and many of them without a response in between, as
//! abuse and close the connection.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use spile_listener::MAX_WINDOW;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout};

use crate::upstream::ConnectedAddress;

/// The most streams on one connection, even if the upstream allows more.
const MAX_STREAMS: usize = 256;
/// The largest header of a response, in bytes.
const MAX_HEADER_BYTES: u32 = 64 * 1024;
/// How long an upstream that did not respond to a request may take to answer a ping, before the connection is closed.
const PONG_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the answer to a ping shows that a connection works, however many requests get no response meanwhile.
const PONG_LASTS: Duration = Duration::from_secs(10);

/// A connection. Clones share it, and it closes with the last of them and of its streams.
#[derive(Clone)]
pub(crate) struct Http2Connection {
    pub(super) sender: SendRequest<Bytes>,
    state: Arc<Http2State>,
    /// `None` if the upstream is given by its address.
    connected_to: Option<ConnectedAddress>,
}

struct Http2State {
    /// Open streams.
    streams: AtomicUsize,
    /// Whether no more streams may be opened.
    retired: AtomicBool,
    /// Sweeps since a stream was opened.
    sweeps: AtomicU32,
    /// Whether the connection was idle or a request on it got no response, and no ping has shown since that it still works.
    suspect: AtomicBool,
    /// Whether a task waits for the answer to a ping, for all requests that would use a suspect connection.
    checking: AtomicBool,
    /// Counts responses.
    responses: AtomicU32,
    opened_at: Instant,
    /// When the last ping of a suspect connection was answered, in milliseconds since `opened_at`. 0 if none was.
    pong_ms: AtomicU64,
    pings: Mutex<PingPong>,
    /// Closes the connection and all of its streams.
    lost: Notify,
}

/// A stream for one request.
pub(crate) struct Http2Stream {
    pub(super) connection: Http2Connection,
    pub(super) permit: StreamPermit,
}

/// Counts as an open stream until the last clone is dropped.
#[derive(Clone)]
pub(super) struct StreamPermit {
    open: Arc<OpenStream>,
}

struct OpenStream(Arc<Http2State>);

impl Http2Connection {
    /// Opens a connection over this byte stream.
    pub(crate) async fn open(
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        stream_window: u32,
    ) -> Result<Self, h2::Error> {
        let mut settings = Builder::new();
        settings
            .enable_push(false)
            .initial_window_size(stream_window)
            // Streams have separate windows. A stream that is not read must not use up the window of the others.
            .initial_connection_window_size(MAX_WINDOW)
            .max_header_list_size(MAX_HEADER_BYTES);
        let (sender, mut connection) = settings.handshake(io).await?;
        let pings = connection.ping_pong().ok_or(h2::Reason::INTERNAL_ERROR)?;
        let state = Arc::new(Http2State::new(pings));
        tokio::spawn(Arc::clone(&state).drive(connection));
        let opened = Self { sender, state, connected_to: None };
        // The upstream's settings come before its answer to the ping, so the maximum of streams is known then.
        opened.ping().await?;
        Ok(opened)
    }

    /// Sets the address of a name that the connection leads to.
    pub(crate) fn with_address(self, connected_to: ConnectedAddress) -> Self {
        Self { connected_to: Some(connected_to), ..self }
    }

    /// The address of a name that the connection leads to. `None` if the upstream is given by its address.
    pub(crate) const fn connected_to(&self) -> Option<&ConnectedAddress> {
        self.connected_to.as_ref()
    }

    /// How many addresses the name of the upstream has.
    pub(crate) fn addresses(&self) -> usize {
        self.connected_to.as_ref().map_or(1, ConnectedAddress::addresses)
    }

    /// A stream for a request, if there is room.
    pub(crate) fn open_stream(&self) -> Option<Http2Stream> {
        let most = self.sender.current_max_send_streams().min(MAX_STREAMS);
        let one_more = |streams| (streams < most).then_some(streams + 1);
        let before = self.state.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        let permit = StreamPermit { open: Arc::new(OpenStream(Arc::clone(&self.state))) };
        if self.state.sweeps.swap(0, Ordering::Relaxed) > 0 && before == 0 {
            // It was idle for longer than an earlier answer to a ping means anything.
            self.state.pong_ms.store(0, Ordering::Relaxed);
            self.state.suspect.store(true, Ordering::Relaxed);
        }
        Some(Http2Stream { connection: self.clone(), permit })
    }

    /// Whether streams may be opened, now or when others have ended.
    pub(crate) fn is_open(&self) -> bool {
        let ready = self.sender.clone().poll_ready(&mut Context::from_waker(Waker::noop()));
        let leads_there = self.connected_to.as_ref().is_none_or(ConnectedAddress::is_current);
        leads_there && !matches!(ready, Poll::Ready(Err(_))) && !self.state.retired.load(Ordering::Relaxed)
    }

    /// Counts a sweep. Returns the number of sweeps since the connection was last used.
    pub(crate) fn sweep(&self) -> u32 {
        if self.state.streams.load(Ordering::Relaxed) > 0 {
            self.state.sweeps.store(0, Ordering::Relaxed);
            return 0;
        }
        self.state.sweeps.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Opens no more streams. Those that are open continue, unless the upstream does not answer a ping either.
    pub(super) fn retire(&self) {
        if self.state.retired.swap(true, Ordering::Relaxed) {
            return;
        }
        let suspect = self.clone();
        tokio::spawn(async move { suspect.close_unless(PONG_TIMEOUT, suspect.ping()).await });
    }

    /// Closes the connection with all of its streams, unless the upstream answers the ping in time.
    async fn close_unless(&self, within: Duration, ping: impl Future<Output = Result<(), h2::Error>>) {
        if !matches!(timeout(within, ping).await, Ok(Ok(()))) {
            self.state.lost.notify_one();
        }
    }

    /// Whether a suspect connection answers a ping in time. If it does not, it is retired.
    async fn retire_unless_alive(&self, within: Duration) -> bool {
        let alive = matches!(timeout(within, self.ping_if_suspect()).await, Ok(Ok(())));
        if !alive {
            self.retire();
        }
        alive
    }

    /// The number of responses so far.
    pub(super) fn responses(&self) -> u32 {
        self.state.responses.load(Ordering::Relaxed)
    }

    /// Counts a response.
    pub(super) fn record_response(&self) {
        self.state.responses.fetch_add(1, Ordering::Relaxed);
    }

    /// Resolves when the upstream answers a ping, or at once if another request has shown that it does.
    async fn ping_if_suspect(&self) -> Result<(), h2::Error> {
        let mut pings = self.state.pings.lock().await;
        if self.state.is_suspect() {
            ping(&mut pings).await?;
            self.state.record_pong();
        }
        Ok(())
    }

    async fn ping(&self) -> Result<(), h2::Error> {
        ping(&mut *self.state.pings.lock().await).await
    }
}

async fn ping(pings: &mut PingPong) -> Result<(), h2::Error> {
    // Discards a late answer to an earlier ping, which would say nothing about the current state.
    let _earlier = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
    // Fails if an earlier ping has no answer yet. That answer serves as well.
    let _under_way = pings.send_ping(Ping::opaque());
    poll_fn(|cx| pings.poll_pong(cx)).await.map(drop)
}

impl Http2State {
    fn new(pings: PingPong) -> Self {
        Self {
            streams: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            sweeps: AtomicU32::new(0),
            suspect: AtomicBool::new(false),
            checking: AtomicBool::new(false),
            responses: AtomicU32::new(0),
            opened_at: Instant::now(),
            pong_ms: AtomicU64::new(0),
            pings: Mutex::new(pings),
            lost: Notify::new(),
        }
    }

    /// Whether a ping has to show that the connection still works.
    fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Relaxed) && {
            let pong_ms = self.pong_ms.load(Ordering::Relaxed);
            pong_ms == 0 || self.opened_at.elapsed() >= Duration::from_millis(pong_ms) + PONG_LASTS
        }
    }

    fn record_pong(&self) {
        let pong_ms = u64::try_from(self.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.pong_ms.store(pong_ms.max(1), Ordering::Relaxed);
        self.suspect.store(false, Ordering::Relaxed);
    }

    /// Drives the connection until it ends.
    async fn drive(self: Arc<Self>, connection: Connection<impl AsyncRead + AsyncWrite + Unpin, Bytes>) {
        tokio::select! {
            // Each stream gets the error itself.
            _ended = connection => {}
            () = self.lost.notified() => {}
        }
        self.retired.store(true, Ordering::Relaxed);
    }
}

impl Http2Stream {
    /// The address of a name that the connection leads to.
    #[cfg(test)]
    pub(crate) fn connected_to(&self) -> Option<std::net::IpAddr> {
        self.connection.connected_to().map(ConnectedAddress::address)
    }

    /// Whether the connection still works. A middlebox may have dropped it while it was idle, or the upstream may have
    /// vanished. If it answers no ping in time, it gets no more requests. Its streams have longer: the upstream may be slow.
    pub(crate) async fn is_alive(&self, within: Duration) -> bool {
        let connection = &self.connection;
        if !connection.state.is_suspect() {
            return true;
        }
        // The check continues if this request ends before it, which happens if the request's timeout is shorter.
        if !connection.state.checking.swap(true, Ordering::Relaxed) {
            let checked = connection.clone();
            tokio::spawn(async move {
                checked.retire_unless_alive(within).await;
                checked.state.checking.store(false, Ordering::Relaxed);
            });
        }
        connection.retire_unless_alive(within).await
    }
}

impl StreamPermit {
    /// Records that a request got no response. If none of the connection's requests did since it was sent, the connection is
    /// suspect. `responses` is their number then.
    pub(super) fn record_unanswered(&self, responses: u32) {
        let state = &self.open.0;
        if state.responses.load(Ordering::Relaxed) == responses {
            state.suspect.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for StreamPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamPermit")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http::{Request, Response};
    use tokio::sync::watch;

    use super::*;
    use crate::forward::body::Upload;
    use crate::route::Timeouts;
    use crate::upstream::AttemptError;

    /// An upstream that responds, except while the sender holds true.
    async fn opened() -> (Http2Connection, watch::Sender<bool>) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (silence, silent) = watch::channel(false);
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(far).await.expect("a connection");
            let mut silenced = silent.clone();
            loop {
                tokio::select! {
                    biased;
                    () = async { drop(silenced.wait_for(|silent| *silent).await) } => {
                        drop(silenced.wait_for(|silent| !*silent).await);
                    }accepted = connection.accept() => {
                        let Some(Ok((_, mut reply))) = accepted else { return };
                        // Its client may have left while the upstream was silent.
                        let _sent: Result<h2::SendStream<Bytes>, _> =
                            reply.send_response(Response::new(()), true);
                    }
                }
            }
        });
        (Http2Connection::open(near, 65_535).await.expect("a connection"), silence)
    }

    async fn ask(stream: Http2Stream) -> Result<(), AttemptError> {
        let request = Request::get("http://upstream.test/").body(()).expect("a request");
        stream.send(request, &mut Upload::none(), &Timeouts::default(), false).await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_forgotten_on_the_way_is_found_out_before_anything_is_sent() {
        let (connection, silence) = opened().await;
        let within = Duration::from_secs(1);
        ask(connection.open_stream().expect("a place")).await.expect("an answer");
        connection.sweep();
        let stream = connection.open_stream().expect("a place");
        assert!(stream.is_alive(within).await, "it answers");
        drop(stream);
        silence.send_replace(true);
        let stream = connection.open_stream().expect("a place");
        assert!(stream.is_alive(within).await, "it was used a moment ago, and is not asked");
        drop(stream);
        connection.sweep();
        let [first, second] = [(); 2].map(|()| connection.open_stream().expect("a place"));
        assert_eq!(tokio::join!(first.is_alive(within), second.is_alive(within)), (false, false));
        assert!(!connection.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_upstream_ends_all_streams_if_it_answers_no_ping_either() {
        let (connection, silence) = opened().await;
        silence.send_replace(true);
        let [first, second] = [(); 2].map(|()| connection.open_stream().expect("a place"));
        let patient = Timeouts { first_byte: Duration::from_secs(3_600), ..Timeouts::default() };
        let stranger = tokio::spawn(async move {
            let request = Request::get("http://upstream.test/").body(()).expect("a request");
            second.send(request, &mut Upload::none(), &patient, false).await.map(drop)
        });
        assert_eq!(ask(first).await, Err(AttemptError::TimedOut));
        assert_eq!(stranger.await.expect("it ends"), Err(AttemptError::Closed { sent: true }));
    }

    /// An upstream that answers pings, and requests only once the sender holds true.
    async fn slow() -> (Http2Connection, watch::Sender<bool>) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (answer, answers) = watch::channel(false);
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(far).await.expect("a connection");
            while let Some(Ok((_, mut reply))) = connection.accept().await {
                let mut answers = answers.clone();
                tokio::spawn(async move {
                    drop(answers.wait_for(|answers| *answers).await);
                    let _sent: Result<h2::SendStream<Bytes>, _> =
                        reply.send_response(Response::new(()), true);
                });
            }
        });
        (Http2Connection::open(near, 65_535).await.expect("a connection"), answer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_upstream_that_answers_pings_keeps_its_streams_after_a_timeout_and_after_clients_left() {
        let (connection, answer) = slow().await;
        let patient = Timeouts { first_byte: Duration::from_secs(3_600), ..Timeouts::default() };
        let stream = connection.open_stream().expect("a place");
        let stranger = tokio::spawn(async move {
            let request = Request::get("http://upstream.test/").body(()).expect("a request");
            stream.send(request, &mut Upload::none(), &patient, false).await.map(drop)
        });
        for _ in 0..3 {
            let leaves = timeout(Duration::from_secs(1), ask(connection.open_stream().expect("a place")));
            assert!(leaves.await.is_err(), "it is slow");
            assert!(connection.state.suspect.load(Ordering::Relaxed));
            assert!(connection.open_stream().expect("a place").is_alive(Duration::from_secs(1)).await);
        }
        assert!(connection.is_open());
        assert_eq!(ask(connection.open_stream().expect("a place")).await, Err(AttemptError::TimedOut));
        assert!(!connection.is_open(), "the next request takes another connection");
        tokio::time::sleep(10 * PONG_TIMEOUT).await;
        answer.send_replace(true);
        assert_eq!(stranger.await.expect("it ends"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_pauses_for_longer_than_a_ping_may_take_keeps_its_streams() {
        let (connection, silence) = opened().await;
        silence.send_replace(true);
        let patient = Timeouts { first_byte: Duration::from_secs(3_600), ..Timeouts::default() };
        let stream = connection.open_stream().expect("a place");
        let stranger = tokio::spawn(async move {
            let request = Request::get("http://upstream.test/").body(()).expect("a request");
            stream.send(request, &mut Upload::none(), &patient, false).await.map(drop)
        });
        let leaves = timeout(Duration::from_secs(1), ask(connection.open_stream().expect("a place")));
        assert!(leaves.await.is_err(), "it is silent");
        assert!(!connection.open_stream().expect("a place").is_alive(Duration::from_secs(1)).await);
        assert!(!connection.is_open(), "the next request takes another connection");
        silence.send_replace(false);
        assert_eq!(stranger.await.expect("it ends"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_called_off_at_once_do_not_look_like_an_attack() {
        let (connection, silence) = opened().await;
        silence.send_replace(true);
        for _ in 0..30 {
            let mut asking = Box::pin(ask(connection.open_stream().expect("a place")));
            assert!((&mut asking).now_or_never().is_none(), "it is on its way");
            // The request is sent, and the upstream does not handle it yet.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        silence.send_replace(false);
        tokio::time::sleep(Duration::from_secs(1)).await;
        ask(connection.open_stream().expect("a place")).await.expect("an answer");
        assert_eq!(connection.state.streams.load(Ordering::Relaxed), 0, "their places are free again");
    }

    #[tokio::test]
    async fn a_place_is_free_again_when_its_answer_is_dropped() {
        let (connection, _silence) = opened().await;
        let taken: Vec<_> = std::iter::from_fn(|| connection.open_stream()).collect();
        assert_eq!(taken.len(), MAX_STREAMS);
        drop(taken);
        ask(connection.open_stream().expect("a place")).await.expect("an answer");
    }
}
