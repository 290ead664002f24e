//! One client's HTTP/2 connection: its streams are accepted, answered each by a task of its own, and ended where the
//! client does not take its answer.

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

use super::received::{KeepOpen, Received};
use super::sending::{Paced, Sending, Unsent};
use crate::bounds::Bounds;
use crate::date;
use crate::drain::Watcher;
use crate::streams::{Streams, UnderWay};

/// Fields that only mean something over HTTP/1.
const OF_HTTP_1: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// Streams whose unread bodies fit into a connection's window together.
const WINDOWS: u32 = 32;
/// What h2 keeps of a stream's answer while the client's side of the connection is full.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// What small frames may add up to within one turn, before the streams have taken them: 256 bytes for each.
const SMALL_FRAMES: usize = 64 * 1024 * 1024;
/// How long a client that was answered early has to see that, before its stream is reset.
const LINGER: Duration = Duration::from_secs(2);
/// What a header of an answer has at least.
const HEADER: u64 = 32;
/// How long a client without streams may take to answer the ping that comes with the end.
const LAST_PONG_WITHIN: Duration = Duration::from_secs(1);
/// How long a client may take to answer a ping.
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// Serves a connection to its end.
pub(crate) async fn serve<I, B, F>(
    io: I,
    bounds: &Bounds,
    streams: Streams,
    watcher: Watcher,
    answer: impl Fn(Request<Received>) -> F + Unpin,
) where
    I: AsyncRead + AsyncWrite + Unpin,
    B: Paced + Send + 'static,
    B::Error: Send,
    F: Future<Output = Response<B>> + Send + 'static,
{
    let Ok(mut connection) = settings(bounds).handshake(io).await else { return };
    let pings = connection.ping_pong().map(|pings| KeepAlive::new(pings, bounds.header_timeout));
    let taken_within = bounds.write_timeout;
    let accepting = Accepting { connection, pings, streams, taken_within, answer, ending: None };
    watcher.watch(accepting, Accepting::end_gracefully).await;
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

/// The largest window that HTTP/2 knows.
pub const MAX_WINDOW: u32 = (1 << 31) - 1;

/// Accepts streams until the connection ends.
struct Accepting<I, A> {
    connection: Connection<I, Bytes>,
    pings: Option<KeepAlive>,
    streams: Streams,
    taken_within: Duration,
    answer: A,
    /// From when the listener drains.
    ending: Option<Ending>,
}

/// Finds out that a client which was told to go has nothing left to wait for, though it does not go.
struct Ending {
    timer: Pin<Box<Sleep>>,
    taken: u32,
}

impl Ending {
    fn new(streams: &Streams) -> Self {
        Self { timer: Box::pin(sleep(LAST_PONG_WITHIN)), taken: streams.writes() }
    }

    /// Ready once no stream is under way and nothing of an answer was taken for a while.
    fn poll_over(&mut self, cx: &mut Context<'_>, streams: &Streams) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let taken = streams.writes();
            if std::mem::replace(&mut self.taken, taken) == taken && !streams.any() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(tokio::time::Instant::now() + LAST_PONG_WITHIN);
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin, A: Unpin> Accepting<I, A> {
    /// Accepts no more streams, and ends with the last of those under way.
    fn end_gracefully(self: Pin<&mut Self>) {
        let this = self.get_mut();
        this.connection.graceful_shutdown();
        this.ending = Some(Ending::new(&this.streams));
    }
}

impl<I, A, B, F> Future for Accepting<I, A>
where
    I: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request<Received>) -> F + Unpin,
    B: Paced + Send + 'static,
    B::Error: Send,
    F: Future<Output = Response<B>> + Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // A connection that breaks ends with its client.
        while let Poll::Ready(accepted) = this.connection.poll_accept(cx) {
            let Some(Ok((request, reply))) = accepted else { return Poll::Ready(()) };
            let is_head = request.method() == Method::HEAD;
            let (head, stream) = request.into_parts();
            let body = Received::new(stream, &head.headers);
            let keep_open = body.keep_open();
            let answering = (this.answer)(Request::from_parts(head, body));
            tokio::spawn(Stream {
                state: State::Answering { answering },
                reply,
                is_head,
                taken_within: this.taken_within,
                keep_open,
                linger: None,
                under_way: this.streams.begin(),
            });
        }
        let streams = &this.streams;
        if this.ending.as_mut().is_some_and(|ending| ending.poll_over(cx, streams).is_ready()) {
            return Poll::Ready(());
        }
        this.pings.as_mut().map_or(Poll::Pending, |pings| pings.poll_lost(cx, streams))
    }
}

pin_project! {
    /// One stream, from its request to the last of its answer. Written out, for a request is moved once only so.
    struct Stream<F, B> {
        #[pin]
        state: State<F, B>,
        reply: SendResponse<Bytes>,
        is_head: bool,
        taken_within: Duration,
        keep_open: KeepOpen,
        linger: Option<Pin<Box<Sleep>>>,
        under_way: UnderWay,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<F, B> {
        Answering {
            #[pin]
            answering: F,
        },
        Sending {
            sending: Sending<B>,
        },
        /// Everything is said, and the client may still be sending. A reset now would look like a failure to many, who
        /// would not read the answer.
        Lingering,
    }
}

impl<F: Future<Output = Response<B>>, B: Paced> Future for Stream<F, B> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjected::Answering { answering } => {
                    let Poll::Ready(answer) = answering.poll(cx) else {
                        // A client that gives up on its request is not kept waiting for.
                        return this.reply.poll_reset(cx).map(drop);
                    };
                    this.under_way.hand(HEADER);
                    match begin(answer, this.reply, *this.is_head, *this.taken_within) {
                        Ok(Some(sending)) => State::Sending { sending },
                        Ok(None) => State::Lingering,
                        Err(_) => return Poll::Ready(()),
                    }
                }
                StateProjected::Sending { sending } => {
                    let before = sending.sent_bytes();
                    let sent = Pin::new(&mut *sending).poll(cx);
                    this.under_way.hand(sending.sent_bytes() - before);
                    match ready!(sent) {
                        Ok(()) => State::Lingering,
                        Err(why) => {
                            if let Unsent::Broken(_) = why {
                                sending.break_off();
                            }
                            return Poll::Ready(());
                        }
                    }
                }
                StateProjected::Lingering
                    if this.keep_open.poll_ended(cx).is_ready() || !this.under_way.may_linger() =>
                {
                    return Poll::Ready(());
                }
                StateProjected::Lingering => {
                    return this.linger.get_or_insert_with(|| Box::pin(sleep(LINGER))).as_mut().poll(cx);
                }
            };
            this.state.set(next);
        }
    }
}

/// Sends the header of an answer. Gives what is to send of its body, if there is one.
fn begin<B: Paced>(
    answer: Response<B>,
    reply: &mut SendResponse<Bytes>,
    is_head: bool,
    taken_within: Duration,
) -> Result<Option<Sending<B>>, h2::Error> {
    let (mut head, body) = answer.into_parts();
    let bodiless = body.is_end_stream();
    if let Some(length) = body.size_hint().exact().filter(|_| !bodiless) {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    drop_fields_of_http_1(&mut head.headers);
    // hyper adds one over HTTP/1.
    head.headers.entry(DATE).or_insert_with(date::now);
    let ends = is_head || bodiless;
    let stream = reply.send_response(Response::from_parts(head, ()), ends)?;
    Ok((!ends).then(|| Sending::new(stream, body, taken_within)))
}

fn drop_fields_of_http_1(headers: &mut HeaderMap) {
    // Looking at each field once is quicker than asking for each of these.
    if headers.keys().any(|name| OF_HTTP_1.contains(name)) {
        for name in OF_HTTP_1 {
            headers.remove(name);
        }
    }
}

/// Finds out whether a client with streams under way is still there.
struct KeepAlive {
    pings: PingPong,
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    unanswered: bool,
    /// What the client had taken when the ping was sent.
    taken: u32,
}

impl KeepAlive {
    fn new(pings: PingPong, interval: Duration) -> Self {
        Self { pings, interval, timer: Box::pin(sleep(interval)), unanswered: false, taken: 0 }
    }

    /// Ready once a ping stays without an answer. It may wait behind much that the client has yet to take: as long as it
    /// takes some of that, it is there.
    fn poll_lost(&mut self, cx: &mut Context<'_>, streams: &Streams) -> Poll<()> {
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
            self.unanswered = streams.any() && self.pings.send_ping(Ping::opaque()).is_ok();
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
    use crate::client_stream::ClientStream;
    use crate::drain::Drain;

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
        let streams = Streams::default();
        let io = ClientStream::new(near, &bounds).resting(streams.clone());
        let watcher = Drain::new().watcher();
        let large = || Response::new(Full::new(Bytes::from(vec![b'x'; 300_000])));
        let answer = move |_: Request<Received>| std::future::ready(large());
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
