//! One connection to an upstream, and the places for requests on it.
//!
//! Pings are sent where their answer decides something: when the connection is new, before one that has rested is used
//! again, and when a request on it was not answered. Servers of gRPC take pings without work for abuse, and hang up.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use spile_listener::MAX_WINDOW;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use crate::upstream::Reached;

/// Requests that one connection carries at once, even if its upstream would take more.
const MAX_STREAMS: usize = 256;
/// Bytes of an answer's header.
const MAX_HEADER_BYTES: u32 = 64 * 1024;
/// How long an upstream that left a request unanswered may take to answer a ping, before all of its streams are ended.
const PONG_WITHIN: Duration = Duration::from_secs(5);

/// A connection. Clones are the same one; it ends with the last of them and of its streams.
#[derive(Clone)]
pub(crate) struct Http2 {
    pub(super) sender: SendRequest<Bytes>,
    state: Arc<State>,
    /// `None` if its address is no name's.
    reached: Option<Reached>,
}

struct State {
    /// Requests under way.
    streams: AtomicUsize,
    /// Whether no more requests may be begun.
    retired: AtomicBool,
    /// Sweeps since a request was begun.
    sweeps: AtomicU32,
    /// Whether it has rested, and no ping has shown since that it is still there.
    suspect: AtomicBool,
    pings: Mutex<PingPong>,
    /// Ends the connection, with all of its streams.
    lost: Notify,
}

/// A place for one request on a connection.
pub(crate) struct Http2Stream {
    pub(super) connection: Http2,
    pub(super) slot: Slot,
}

/// Counts as a request under way until the last clone is dropped.
#[derive(Clone)]
pub(super) struct Slot {
    _taken: Arc<Taken>,
}

struct Taken(Arc<State>);

impl Http2 {
    /// Sets up a connection over these bytes.
    pub(crate) async fn open(
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        stream_window: u32,
    ) -> Result<Self, h2::Error> {
        let mut settings = Builder::new();
        settings
            .enable_push(false)
            .initial_window_size(stream_window)
            // Streams have windows of their own: one that is not read must not use up what the others need.
            .initial_connection_window_size(MAX_WINDOW)
            .max_header_list_size(MAX_HEADER_BYTES);
        let (sender, mut connection) = settings.handshake(io).await?;
        let pings = connection.ping_pong().ok_or(h2::Reason::INTERNAL_ERROR)?;
        let state = Arc::new(State::new(pings));
        tokio::spawn(Arc::clone(&state).drive(connection));
        let opened = Self { sender, state, reached: None };
        // The upstream's settings are the first that it sends. With its answer to a ping they are known, and with them
        // how many streams it takes.
        opened.ping().await?;
        Ok(opened)
    }

    /// The same, which leads to this address of a name.
    pub(crate) fn at(self, reached: Reached) -> Self {
        Self { reached: Some(reached), ..self }
    }

    /// Where it leads; `None` if its address is no name's.
    pub(crate) const fn reached(&self) -> Option<&Reached> {
        self.reached.as_ref()
    }

    /// How many addresses the upstream has, one of which this connection leads to.
    pub(crate) fn addresses(&self) -> usize {
        self.reached.as_ref().map_or(1, Reached::addresses)
    }

    /// A place for a request, if there is one.
    pub(crate) fn begin(&self) -> Option<Http2Stream> {
        let most = self.sender.current_max_send_streams().min(MAX_STREAMS);
        let one_more = |streams| (streams < most).then_some(streams + 1);
        let before = self.state.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        let slot = Slot { _taken: Arc::new(Taken(Arc::clone(&self.state))) };
        if self.state.sweeps.swap(0, Ordering::Relaxed) > 0 && before == 0 {
            self.state.suspect.store(true, Ordering::Relaxed);
        }
        Some(Http2Stream { connection: self.clone(), slot })
    }

    /// Whether requests may be begun, now or once others have ended.
    pub(crate) fn is_open(&self) -> bool {
        let ready = self.sender.clone().poll_ready(&mut Context::from_waker(Waker::noop()));
        let leads_there = self.reached.as_ref().is_none_or(Reached::is_current);
        leads_there && !matches!(ready, Poll::Ready(Err(_))) && !self.state.retired.load(Ordering::Relaxed)
    }

    /// Counts a sweep, and says how many there were since the connection was last used.
    pub(crate) fn sweep(&self) -> u32 {
        if self.state.streams.load(Ordering::Relaxed) > 0 {
            self.state.sweeps.store(0, Ordering::Relaxed);
            return 0;
        }
        self.state.sweeps.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Begins no more requests. Those under way go on, unless the upstream does not answer a ping either.
    pub(super) fn retire(&self) {
        if self.state.retired.swap(true, Ordering::Relaxed) {
            return;
        }
        let suspect = self.clone();
        tokio::spawn(async move { suspect.end_unless(PONG_WITHIN, suspect.ping()).await });
    }

    /// Says whether the upstream answers a ping. If it does not, the connection and all of its streams end.
    async fn end_unless(&self, within: Duration, ping: impl Future<Output = Result<(), h2::Error>>) -> bool {
        let alive = matches!(timeout(within, ping).await, Ok(Ok(())));
        if !alive {
            self.state.retired.store(true, Ordering::Relaxed);
            self.state.lost.notify_one();
        }
        alive
    }

    /// Resolves once the upstream has answered a ping, at once if another has shown meanwhile that it is still there.
    async fn ping_if_suspect(&self) -> Result<(), h2::Error> {
        let mut pings = self.state.pings.lock().await;
        if self.state.suspect.load(Ordering::Relaxed) {
            ping(&mut pings).await?;
            self.state.suspect.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn ping(&self) -> Result<(), h2::Error> {
        ping(&mut *self.state.pings.lock().await).await
    }
}

async fn ping(pings: &mut PingPong) -> Result<(), h2::Error> {
    // The answer to a ping that was given up on says nothing about this moment.
    let _earlier = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
    // Fails if an earlier ping is not answered yet, whose answer serves as well.
    let _under_way = pings.send_ping(Ping::opaque());
    poll_fn(|cx| pings.poll_pong(cx)).await.map(drop)
}

impl State {
    fn new(pings: PingPong) -> Self {
        Self {
            streams: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            sweeps: AtomicU32::new(0),
            suspect: AtomicBool::new(false),
            pings: Mutex::new(pings),
            lost: Notify::new(),
        }
    }

    /// Carries frames to and fro until the connection ends.
    async fn drive(self: Arc<Self>, connection: Connection<impl AsyncRead + AsyncWrite + Unpin, Bytes>) {
        tokio::select! {
            // Each request hears of a failure by itself.
            _ended = connection => {}
            () = self.lost.notified() => {}
        }
        self.retired.store(true, Ordering::Relaxed);
    }
}

impl Http2Stream {
    /// The address that it leads to, if that is a name's.
    #[cfg(test)]
    pub(crate) fn reached(&self) -> Option<std::net::IpAddr> {
        self.connection.reached().map(Reached::address)
    }

    /// Whether the connection is still there. One that has rested may have been forgotten by something on the way, which
    /// shows only when nothing comes back.
    pub(crate) async fn is_alive(&self, within: Duration) -> bool {
        let connection = &self.connection;
        !connection.state.suspect.load(Ordering::Relaxed)
            || connection.end_unless(within, connection.ping_if_suspect()).await
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
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
    use crate::upstream::Unanswered;

    /// An upstream that answers, but for when it is told to be silent.
    async fn opened() -> (Http2, watch::Sender<bool>) {
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
                        reply.send_response(Response::new(()), true).expect("an open stream");
                    }
                }
            }
        });
        (Http2::open(near, 65_535).await.expect("a connection"), silence)
    }

    async fn ask(stream: Http2Stream) -> Result<(), Unanswered> {
        let request = Request::get("http://upstream.test/").body(()).expect("a request");
        stream.ask(request, &mut Upload::none(), &Timeouts::default(), false).await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_forgotten_on_the_way_is_found_out_before_anything_is_sent() {
        let (connection, silence) = opened().await;
        let within = Duration::from_secs(1);
        ask(connection.begin().expect("a place")).await.expect("an answer");
        connection.sweep();
        let stream = connection.begin().expect("a place");
        assert!(stream.is_alive(within).await, "it answers");
        drop(stream);
        silence.send_replace(true);
        let stream = connection.begin().expect("a place");
        assert!(stream.is_alive(within).await, "it was used a moment ago, and is not asked");
        drop(stream);
        connection.sweep();
        let [first, second] = [(); 2].map(|()| connection.begin().expect("a place"));
        assert_eq!(tokio::join!(first.is_alive(within), second.is_alive(within)), (false, false));
        assert!(!connection.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_upstream_ends_all_streams_if_it_answers_no_ping_either() {
        let (connection, silence) = opened().await;
        silence.send_replace(true);
        let [first, second] = [(); 2].map(|()| connection.begin().expect("a place"));
        let patient = Timeouts { first_byte: Duration::from_secs(3_600), ..Timeouts::default() };
        let stranger = tokio::spawn(async move {
            let request = Request::get("http://upstream.test/").body(()).expect("a request");
            second.ask(request, &mut Upload::none(), &patient, false).await.map(drop)
        });
        assert_eq!(ask(first).await, Err(Unanswered::Silent));
        assert_eq!(stranger.await.expect("it ends"), Err(Unanswered::Closed { sent: true }));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_called_off_at_once_do_not_look_like_an_attack() {
        let (connection, silence) = opened().await;
        silence.send_replace(true);
        for _ in 0..30 {
            let mut asking = Box::pin(ask(connection.begin().expect("a place")));
            assert!((&mut asking).now_or_never().is_none(), "it is on its way");
            // The request leaves, and the upstream is busy with something else.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        silence.send_replace(false);
        tokio::time::sleep(Duration::from_secs(1)).await;
        ask(connection.begin().expect("a place")).await.expect("an answer");
        assert_eq!(connection.state.streams.load(Ordering::Relaxed), 0, "their places are free again");
    }

    #[tokio::test]
    async fn a_place_is_free_again_when_its_answer_is_dropped() {
        let (connection, _silence) = opened().await;
        let taken: Vec<_> = std::iter::from_fn(|| connection.begin()).collect();
        assert_eq!(taken.len(), MAX_STREAMS);
        drop(taken);
        ask(connection.begin().expect("a place")).await.expect("an answer");
    }
}
