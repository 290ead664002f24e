//! Serves an HTTP/2 connection of a client: accepts streams, answers each in a separate task, and resets those whose
//! client does not read the response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, PingPong};
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, Response};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Sleep, sleep};

use super::date;
use super::receive_body::{KeepOpen, ReceiveBody};
use super::send_body::{PacedBody, SendBody, SendBodyError};
use super::streams::{StreamGuard, StreamTracker};
use crate::listener::{Bounds, DrainWatcher};

/// Header fields that only have a meaning in HTTP/1.
const HTTP1_FIELDS: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// The connection's window, in windows of a stream.
const WINDOWS: u32 = 32;
/// How much of a stream's response h2 buffers while the client does not read.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// How many bytes small frames may add up to in one poll, before the streams take them. Each counts as 256 bytes.
const SMALL_FRAMES: usize = 64 * 1024 * 1024;
/// How long a stream stays open after an early response, so that the client can read it before the reset.
const LINGER: Duration = Duration::from_secs(2);
/// The least bytes of a response header.
const HEADER: u64 = 32;
/// How long a client without streams may take to answer the last ping during a drain.
const LAST_PONG_WITHIN: Duration = Duration::from_secs(1);
/// How long a client may take to answer a ping.
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// Serves a connection to its end.
pub(crate) async fn serve<I, B, F>(
    io: I,
    bounds: &Bounds,
    streams: StreamTracker,
    watcher: DrainWatcher,
    answer: impl Fn(Request<ReceiveBody>) -> F + Unpin,
) where
    I: AsyncRead + AsyncWrite + Unpin,
    B: PacedBody + Send + 'static,
    B::Error: Send,
    F: Future<Output = Response<B>> + Send + 'static,
{
    let Ok(mut connection) = settings(bounds).handshake(io).await else { return };
    let pings = connection.ping_pong().map(|pings| KeepAlive::new(pings, bounds.header_timeout));
    let taken_within = bounds.write_timeout;
    let accepting = ServerConnection { connection, pings, streams, taken_within, answer, drain_timer: None };
    watcher.watch(accepting, ServerConnection::end_gracefully).await;
}

fn settings(bounds: &Bounds) -> Builder {
    let window = bounds.stream_window;
    let mut settings = Builder::new();
    settings
        .max_concurrent_streams(bounds.streams)
        .max_header_list_size(u32::try_from(bounds.header_bytes).unwrap_or(u32::MAX))
        .initial_window_size(window)
        .initial_connection_window_size(window.saturating_mul(WINDOWS).min(MAX_WINDOW))
        .max_send_buffer_size(MAX_SEND_BUFFER)
        .data_frame_budget(SMALL_FRAMES);
    settings
}

/// The largest flow-control window of HTTP/2.
pub const MAX_WINDOW: u32 = (1 << 31) - 1;

/// Accepts streams until the connection ends.
struct ServerConnection<I, A> {
    connection: Connection<I, Bytes>,
    pings: Option<KeepAlive>,
    streams: StreamTracker,
    taken_within: Duration,
    answer: A,
    /// Set when the listener drains.
    drain_timer: Option<DrainTimer>,
}

/// Ends a connection during a drain if the client has no streams left but does not close it.
struct DrainTimer {
    timer: Pin<Box<Sleep>>,
    taken: u32,
}

impl DrainTimer {
    fn new(streams: &StreamTracker) -> Self {
        Self { timer: Box::pin(sleep(LAST_PONG_WITHIN)), taken: streams.writes() }
    }

    /// Ready if no stream is open and no part of a response was written for a while.
    fn poll_expired(&mut self, cx: &mut Context<'_>, streams: &StreamTracker) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let taken = streams.writes();
            if std::mem::replace(&mut self.taken, taken) == taken && !streams.has_open() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(tokio::time::Instant::now() + LAST_PONG_WITHIN);
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin, A: Unpin> ServerConnection<I, A> {
    /// Accepts no more streams, and ends with the last open one.
    fn end_gracefully(self: Pin<&mut Self>) {
        let this = self.get_mut();
        this.connection.graceful_shutdown();
        this.drain_timer = Some(DrainTimer::new(&this.streams));
    }
}

impl<I, A, B, F> Future for ServerConnection<I, A>
where
    I: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request<ReceiveBody>) -> F + Unpin,
    B: PacedBody + Send + 'static,
    B::Error: Send,
    F: Future<Output = Response<B>> + Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // An error means that the connection broke.
        while let Poll::Ready(accepted) = this.connection.poll_accept(cx) {
            let Some(Ok((request, reply))) = accepted else { return Poll::Ready(()) };
            let is_head = request.method() == Method::HEAD;
            let (head, stream) = request.into_parts();
            let body = ReceiveBody::new(stream, &head.headers);
            let keep_open = body.keep_open();
            let answering = (this.answer)(Request::from_parts(head, body));
            tokio::spawn(ServerStream {
                state: StreamState::Answering { answering },
                reply,
                is_head,
                taken_within: this.taken_within,
                keep_open,
                linger: None,
                guard: this.streams.open(),
            });
        }
        let streams = &this.streams;
        if this
            .drain_timer
            .as_mut()
            .is_some_and(|drain_timer| drain_timer.poll_expired(cx, streams).is_ready())
        {
            return Poll::Ready(());
        }
        this.pings.as_mut().map_or(Poll::Pending, |pings| pings.poll_lost(cx, streams))
    }
}

pin_project! {
    /// One stream, from its request to the end of its response. Written by hand, so that the request is moved only
    /// once.
    struct ServerStream<F, B> {
        #[pin]
        state: StreamState<F, B>,
        reply: SendResponse<Bytes>,
        is_head: bool,
        taken_within: Duration,
        keep_open: KeepOpen,
        linger: Option<Pin<Box<Sleep>>>,
        guard: StreamGuard,
    }
}

pin_project! {
    #[project = StreamStateProjected]
    enum StreamState<F, B> {
        Answering {
            #[pin]
            answering: F,
        },
        SendBody {
            sending: SendBody<B>,
        },
        /// The response is complete, and the client may still be sending. Many clients would take a reset for a failure
        /// and not read the response.
        Lingering,
    }
}

impl<F: Future<Output = Response<B>>, B: PacedBody> Future for ServerStream<F, B> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StreamStateProjected::Answering { answering } => {
                    let Poll::Ready(answer) = answering.poll(cx) else {
                        // If the client has reset the stream, the handler is cancelled.
                        return this.reply.poll_reset(cx).map(drop);
                    };
                    this.guard.add_response_bytes(HEADER);
                    match begin(answer, this.reply, *this.is_head, *this.taken_within) {
                        Ok(Some(sending)) => StreamState::SendBody { sending },
                        Ok(None) => StreamState::Lingering,
                        Err(_) => return Poll::Ready(()),
                    }
                }
                StreamStateProjected::SendBody { sending } => {
                    let before = sending.sent_bytes();
                    let sent = Pin::new(&mut *sending).poll(cx);
                    this.guard.add_response_bytes(sending.sent_bytes() - before);
                    match ready!(sent) {
                        Ok(()) => StreamState::Lingering,
                        Err(why) => {
                            if let SendBodyError::Broken(_) = why {
                                sending.break_off();
                            }
                            return Poll::Ready(());
                        }
                    }
                }
                StreamStateProjected::Lingering
                    if this.keep_open.poll_ended(cx).is_ready() || !this.guard.may_linger() =>
                {
                    return Poll::Ready(());
                }
                StreamStateProjected::Lingering => {
                    return this.linger.get_or_insert_with(|| Box::pin(sleep(LINGER))).as_mut().poll(cx);
                }
            };
            this.state.set(next);
        }
    }
}

/// Sends the header of a response. Returns the sender of its body, if it has one.
fn begin<B: PacedBody>(
    answer: Response<B>,
    reply: &mut SendResponse<Bytes>,
    is_head: bool,
    taken_within: Duration,
) -> Result<Option<SendBody<B>>, h2::Error> {
    let (mut head, body) = answer.into_parts();
    let bodiless = body.is_end_stream();
    if let Some(length) = body.size_hint().exact().filter(|_| !bodiless) {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    remove_http1_fields(&mut head.headers);
    // Over HTTP/1, hyper adds it.
    head.headers.entry(DATE).or_insert_with(date::now);
    let ends = is_head || bodiless;
    let stream = reply.send_response(Response::from_parts(head, ()), ends)?;
    Ok((!ends).then(|| SendBody::new(stream, body, taken_within)))
}

fn remove_http1_fields(headers: &mut HeaderMap) {
    // Iterating over the fields once is faster than six lookups.
    if headers.keys().any(|name| HTTP1_FIELDS.contains(name)) {
        for name in HTTP1_FIELDS {
            headers.remove(name);
        }
    }
}

/// Pings a client with open streams, to find out whether it is still connected.
struct KeepAlive {
    pings: PingPong,
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    unanswered: bool,
    /// The write count when the ping was sent.
    taken: u32,
}

impl KeepAlive {
    fn new(pings: PingPong, interval: Duration) -> Self {
        Self { pings, interval, timer: Box::pin(sleep(interval)), unanswered: false, taken: 0 }
    }

    /// Ready if a ping is not answered in time. A ping may be queued behind much response data: as long as some of that
    /// is written, the client counts as connected.
    fn poll_lost(&mut self, cx: &mut Context<'_>, streams: &StreamTracker) -> Poll<()> {
        if self.unanswered && self.pings.poll_pong(cx).is_ready() {
            self.unanswered = false;
            self.wait(self.interval);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let taken = streams.writes();
            if self.unanswered && std::mem::replace(&mut self.taken, taken) == taken {
                return Poll::Ready(());
            }
            if self.unanswered {
                self.wait(PONG_WITHIN);
                continue;
            }
            self.taken = taken;
            self.unanswered = streams.has_open() && self.pings.send_ping(Ping::opaque()).is_ok();
            self.wait(if self.unanswered { PONG_WITHIN } else { self.interval });
            if self.unanswered && self.pings.poll_pong(cx).is_ready() {
                self.unanswered = false;
            }
        }
        Poll::Pending
    }

    fn wait(&mut self, span: Duration) {
        self.timer.as_mut().reset(tokio::time::Instant::now() + span);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, split};

    use super::*;
    use crate::http::ClientStream;
    use crate::listener::Drain;

    /// A client's side of the connection, which takes 512 bytes in a tenth of a second.
    fn slowed(far: DuplexStream) -> DuplexStream {
        let (near, client) = tokio::io::duplex(1024);
        let ((mut from, mut to), (mut asked, mut told)) = (split(far), split(near));
        tokio::spawn(async move { tokio::io::copy(&mut asked, &mut to).await });
        tokio::spawn(async move {
            let mut some = [0; 512];
            while let Ok(bytes @ 1..) = from.read(&mut some).await {
                sleep(Duration::from_millis(100)).await;
                told.write_all(&some[..bytes]).await.expect("a client that reads");
            }
        });
        client
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_but_steadily_is_not_taken_for_gone() {
        let (near, far) = tokio::io::duplex(1024);
        let bounds = Bounds { header_timeout: Duration::from_secs(2), ..Bounds::default() };
        let streams = StreamTracker::default();
        let io = ClientStream::new(near, &bounds).with_idle_check(streams.clone());
        let watcher = Drain::new().watcher();
        let large = || Response::new(Full::new(Bytes::from(vec![b'x'; 300_000])));
        let answer = move |_: Request<ReceiveBody>| std::future::ready(large());
        tokio::spawn(async move { serve(io, &bounds, streams, watcher, answer).await });
        let mut settings = h2::client::Builder::new();
        settings.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
        let (client, connection) = settings.handshake::<_, Bytes>(slowed(far)).await.expect("HTTP/2");
        tokio::spawn(async move { drop(connection.await) });
        let request = Request::get("http://g/").body(()).expect("a request");
        let (answer, _) =
            client.ready().await.expect("a stream").send_request(request, true).expect("a stream");
        let mut body = answer.await.expect("an answer").into_body();
        let mut bytes = 0;
        let whole = async {
            while let Some(piece) = body.data().await {
                bytes += piece.expect("an answer that goes on").len();
            }
        };
        tokio::time::timeout(Duration::from_secs(600), whole).await.expect("it takes a minute");
        assert_eq!(bytes, 300_000);
    }
}
