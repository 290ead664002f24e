//! One request and its answer: attempts at upstreams, and when another one is safe.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HOST, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, Version};
use http_body::Body;
use smallvec::{SmallVec, smallvec};
use spile_core::{Clock, Micros};
use spile_listener::{Deadline, FIRST_READ};
use tokio::time::Instant;

use super::outbound_request::Errand;
use super::retries::{Failed, Repeat, Repeats};
use crate::forward::body::{Download, Meter, Movement, Upload, UploadFailure};
use crate::limit::PlaceHolder;
use crate::refusal::Refusal;
use crate::route::Served;
use crate::upstream::{
    Abandoned, Asked, Dialer, Health, Http1, Http2Body, Http2Stream, Inbound, Line, Lines, NewLine,
    Outstanding, Purpose, Unanswered, Upgraded,
};

/// How long a connection that has rested may take to show that it is still there.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);
/// A kept connection that closes within this time of being used again had been closed by the upstream before. What takes
/// longer is taken for the request's doing. As long as a packet takes to the other end of the world and back.
const STALE_WITHIN: Duration = Duration::from_millis(500);

/// Takes a request to one of a route's upstreams.
pub(crate) struct Exchange<'w> {
    pub(crate) served: &'w Served,
    /// One for each endpoint of the route, in their order.
    pub(crate) lines: &'w [Arc<Lines>],
    pub(crate) dialer: &'w Dialer,
    /// What the client asked for, with its port.
    pub(crate) authority: &'w str,
    pub(crate) path: PathAndQuery,
    /// Nothing where the request has no body.
    pub(crate) meter: Option<Arc<Meter>>,
    /// In whose name the request waits for a place; `None` if the route has no cap.
    pub(crate) caller: Option<PlaceHolder>,
    pub(crate) clock: &'w dyn Clock,
}

/// An upstream's answer, and the place there that is held until it has been read.
pub(crate) struct Answer {
    pub(crate) response: Response<Source>,
    place: Outstanding,
    movement: Movement,
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Source {
    Http1(Inbound),
    Http2(Http2Body),
}

impl Exchange<'_> {
    /// The upstream's answer, of whichever upstream gives one, and within the time that the route gives it.
    pub(crate) async fn run(
        &self,
        errand: &mut Errand<'_>,
        upload: &mut Upload,
        deadline: &mut Deadline,
    ) -> Result<Answer, Refusal> {
        self.served.retries.deposit();
        let mut asked = self.clock.now();
        let answer = self.attempts(errand, upload, deadline, &mut asked).await;
        let now = self.clock.now();
        let outcome = answer.as_ref().map(|answer| answer.response.status());
        self.served.observe(now, self.upstreams_share(asked, now), outcome);
        answer
    }

    /// Attempts until one is answered or none may follow. `asked` is when the first began, moved on by the time that was
    /// spent in the queue.
    async fn attempts(
        &self,
        errand: &mut Errand<'_>,
        upload: &mut Upload,
        deadline: &mut Deadline,
        asked: &mut Micros,
    ) -> Result<Answer, Refusal> {
        let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
        let (mut repeats, mut repeat) = (Repeats::default(), None);
        let (pool, mut now) = (&self.served.pool, *asked);
        loop {
            let picks = match (repeat, tried.last()) {
                (Some(Repeat::SameUpstream), Some(&last)) => smallvec![last],
                _ => pool.pick(&tried, now),
            };
            let (index, place) = match &self.caller {
                None => (picks[0], pool.endpoints()[picks[0]].occupy(None)),
                Some(caller) => {
                    let entered = deadline.hold(pool.enter(&picks, caller)).await;
                    let entered = entered.unwrap_or(Err(Refusal::Busy))?;
                    let waited = Duration::from_micros(self.clock.now().since_us(now));
                    (*asked, now) = (*asked + waited, now + waited);
                    entered
                }
            };
            let (begun, answers) = (Instant::now(), pool.endpoints()[index].health.answers());
            let attempt = Attempt { exchange: self, index, asked: now, begun, answers };
            let failed = match attempt.run(repeat.is_none(), errand, upload, deadline).await {
                Ok(response) => return Ok(Answer { response, place, movement: self.movement() }),
                Err(failed) => failed,
            };
            repeat = self.again(&mut repeats, failed);
            if repeat.is_none() {
                return Err(self.refusal(failed.why));
            }
            tried.push(index);
            now = self.clock.now();
        }
    }

    /// Where the request goes once more, if it may.
    fn again(&self, repeats: &mut Repeats, failed: Failed) -> Option<Repeat> {
        let before = repeats.counted();
        let repeat = repeats.after(failed, self.served.route.retries, &self.served.retries);
        self.served.telemetry.retries.increment(u64::from(repeats.counted() - before));
        repeat
    }

    /// What upstreams took of the time since `asked`: not what they waited for the client's body.
    fn upstreams_share(&self, asked: Micros, now: Micros) -> Duration {
        let took = Duration::from_micros(now.since_us(asked));
        took.saturating_sub(self.meter.as_ref().map_or(Duration::ZERO, |meter| meter.waited()))
    }

    /// The answer over the connection that stands already, or over a new one, which is not `kept`.
    async fn ask(
        &self,
        index: usize,
        standing: Option<Line>,
        kept: &mut bool,
        upgrades: bool,
        errand: &mut Errand<'_>,
        upload: &mut Upload,
    ) -> Result<Response<Source>, Unanswered> {
        let line = if let Some(line) = self.alive(standing).await {
            line
        } else {
            *kept = false;
            // Boxed, for TLS takes up much room, and every request would carry it around for the few that dial.
            Box::pin(self.dial(index, upgrades)).await?
        };
        match line {
            Line::Http1(line) => self.ask_http1(index, line, errand, upload).await,
            // Boxed as well: requests over HTTP/1.1 need none of it.
            Line::Http2(stream) => Box::pin(self.ask_http2(index, stream, errand, upload)).await,
        }
    }

    /// Whether the connection is to become another protocol, and the handshake might agree on HTTP/2, which cannot.
    fn wants_upgrade_over_tls(&self, index: usize, parts: &Parts) -> bool {
        let upstream = &self.served.pool.endpoints()[index].upstream;
        upstream.speaks_tls() && parts.headers.contains_key(UPGRADE)
    }

    /// The connection, unless it has rested for long and turns out to be gone.
    async fn alive(&self, standing: Option<Line>) -> Option<Line> {
        match standing? {
            Line::Http2(stream) => {
                let within = self.served.route.timeouts.connect.min(ALIVE_WITHIN);
                stream.is_alive(within).await.then_some(Line::Http2(stream))
            }
            line @ Line::Http1(_) => Some(line),
        }
    }

    /// A new connection. Those that can be shared are set up one after the other, or a crowd of requests would set up a
    /// crowd of them.
    async fn dial(&self, index: usize, upgrades: bool) -> Result<Line, Unanswered> {
        let (upstream, lines) = (&self.served.pool.endpoints()[index].upstream, &self.lines[index]);
        let is_shared = || !upgrades && upstream.may_speak_http2() && lines.are_shared();
        if !is_shared() {
            return self.dial_now(index, upgrades).await;
        }
        let waited = tokio::time::timeout(self.served.route.timeouts.connect, lines.lock_dial()).await;
        match lines.place() {
            Some(stream) => Ok(Line::Http2(stream)),
            // Another request waits for the upstream, and says so if that comes to nothing.
            None if waited.is_err() => Err(Unanswered::Unconnected),
            None => {
                let lock = waited.ok().filter(|_| is_shared());
                let line = self.dial_now(index, upgrades).await;
                drop(lock);
                line
            }
        }
    }

    async fn dial_now(&self, index: usize, upgrades: bool) -> Result<Line, Unanswered> {
        let (upstream, lines) = (&self.served.pool.endpoints()[index].upstream, &self.lines[index]);
        let purpose = if upgrades { Purpose::Upgrade } else { Purpose::Request };
        match self.dialer.dial(upstream, purpose, self.served.route.timeouts.connect).await {
            // An upstream that speaks HTTP/2 only is well all the same.
            Err(_) if upgrades => Err(Unanswered::Unconnected),
            Err(why) => Err(why.outcome()),
            Ok(NewLine::Http1(line)) => {
                if !upgrades {
                    lines.are_not_shared();
                }
                Ok(Line::Http1(line))
            }
            Ok(NewLine::Http2(connection)) => {
                lines.share(connection).map(Line::Http2).ok_or(Unanswered::Unreachable)
            }
        }
    }

    async fn ask_http1(
        &self,
        index: usize,
        line: Box<Http1>,
        errand: &Errand<'_>,
        upload: &mut Upload,
    ) -> Result<Response<Source>, Unanswered> {
        let own = self.served.pool.endpoints()[index].upstream.authority.as_str();
        let host = if self.authority.is_empty() { own } else { self.authority };
        let (parts, push_more) = (&errand.parts, &|lines: &mut Vec<u8>| errand.push_apart(lines));
        let (method, path, headers) = (&parts.method, &self.path, &parts.headers);
        // A client of HTTP/2 may ask for much and take nothing of it.
        let read_at_most = if parts.version == Version::HTTP_2 { FIRST_READ } else { usize::MAX };
        let await_answer = self.served.route.cost_from_response;
        let asked = Asked { method, path, host, headers, read_at_most, push_more, await_answer };
        let answer = line.ask(asked, upload, &self.served.route.timeouts, &self.lines[index]).await;
        answer.map(|response| response.map(Source::Http1))
    }

    async fn ask_http2(
        &self,
        index: usize,
        stream: Http2Stream,
        errand: &mut Errand<'_>,
        upload: &mut Upload,
    ) -> Result<Response<Source>, Unanswered> {
        let mut head = Request::new(());
        *head.method_mut() = errand.parts.method.clone();
        // Kept for another attempt.
        *head.headers_mut() = errand.all_fields().clone();
        // A stream cannot become another protocol: the upstream answers as it would without the wish.
        for name in [CONNECTION, UPGRADE, HOST] {
            head.headers_mut().remove(name);
        }
        *head.uri_mut() = self.served.pool.endpoints()[index].upstream.uri(&self.path);
        *head.version_mut() = Version::HTTP_2;
        let route = &self.served.route;
        let answer = stream.ask(head, upload, &route.timeouts, route.cost_from_response).await;
        answer.map(|response| response.map(Source::Http2))
    }

    fn movement(&self) -> Movement {
        self.meter.as_ref().map_or_else(Movement::default, |meter| meter.movement())
    }

    /// Whose time it was that ran out, if it was not the upstream's.
    fn out_of_time(&self) -> Refusal {
        let route = &self.served.route;
        let waited = self.meter.as_ref().map_or(Duration::ZERO, |meter| meter.waited());
        match route.timeouts.total {
            Some(total) if waited >= total / 2 => Refusal::BodyStalled,
            _ if route.concurrency.is_some() => Refusal::Busy,
            _ => Refusal::TimedOut,
        }
    }

    /// What the client is told. A body that it did not deliver ends an exchange too.
    fn refusal(&self, why: Unanswered) -> Refusal {
        let upload = self.meter.as_ref().and_then(|meter| meter.failure());
        match (why, upload) {
            (Unanswered::Silent, _) => Refusal::TimedOut,
            (Unanswered::Unreachable | Unanswered::Unconnected, _) => Refusal::Unreachable,
            (Unanswered::Unsendable, _) => Refusal::Unclear("the request cannot be sent over HTTP/2"),
            (Unanswered::Local, _) => Refusal::Local,
            (_, Some(UploadFailure::TooLarge)) => Refusal::BodyTooLarge,
            (_, Some(UploadFailure::Stalled)) | (Unanswered::Undelivered, None) => Refusal::BodyStalled,
            (_, Some(UploadFailure::Broken)) => Refusal::Unclear("the body broke off"),
            (Unanswered::OutOfTime, None) => self.out_of_time(),
            (_, None) => Refusal::BadAnswer,
        }
    }
}

/// One upstream that is being asked. If it is dropped before there is an answer, the client has left.
struct Attempt<'a> {
    exchange: &'a Exchange<'a>,
    index: usize,
    asked: Micros,
    /// The same by the machine's own clock, whatever the gateway's is.
    begun: Instant,
    /// What the upstream's health said of answers before.
    answers: usize,
}

impl Attempt<'_> {
    /// The upstream's answer, over a connection that stands already if it `may_reuse` one.
    async fn run(
        self,
        may_reuse: bool,
        errand: &mut Errand<'_>,
        upload: &mut Upload,
        deadline: &mut Deadline,
    ) -> Result<Response<Source>, Failed> {
        let (exchange, index) = (self.exchange, self.index);
        let upgrades = exchange.wants_upgrade_over_tls(index, errand.parts);
        let lines = &exchange.lines[index];
        let standing = if upgrades || !may_reuse { None } else { lines.standing() };
        if let Some(Line::Http2(_)) = standing {
            let within = exchange.served.route.timeouts.connect;
            lines.grow(exchange.dialer, &exchange.served.pool.endpoints()[index].upstream, within);
        }
        let mut kept = standing.is_some();
        let asking = exchange.ask(index, standing, &mut kept, upgrades, errand, upload);
        let answer = deadline.hold(asking).await.unwrap_or_else(|| Err(self.out_of_time()));
        let failed = match answer {
            Ok(response) => {
                self.health().answered(self.asked);
                Ok(response)
            }
            Err(why) => Err(self.failed(why, kept, errand, upload)),
        };
        mem::forget(self);
        failed
    }

    fn failed(&self, why: Unanswered, kept: bool, errand: &Errand<'_>, upload: &Upload) -> Failed {
        let (meter, now) = (self.exchange.meter.as_deref(), self.exchange.clock.now());
        let stale = kept && self.begun.elapsed() <= STALE_WITHIN && matches!(why, Unanswered::Closed { .. });
        if why.is_upstreams_fault(stale) {
            self.health().failed(now);
        }
        let whole = meter.is_none_or(|meter| meter.frames() == 0 && !upload.is_end_stream());
        Failed { why, stale, whole, harmless: meter.is_none() && is_idempotent(&errand.parts.method) }
    }

    /// What it means that the time for all of the request has run out.
    fn out_of_time(&self) -> Unanswered {
        let total = self.exchange.served.route.timeouts.total.unwrap_or_default();
        match self.silence() {
            None => Unanswered::Undelivered,
            Some(silence) if silence >= total / 2 => Unanswered::Silent,
            Some(_) => Unanswered::OutOfTime,
        }
    }

    /// How long the upstream has been silent; `None` if it waits for the client's body.
    fn silence(&self) -> Option<Duration> {
        let begun = self.begun.elapsed();
        match &self.exchange.meter {
            None => Some(begun),
            Some(meter) => (!meter.is_waiting()).then(|| begun.min(meter.still_for())),
        }
    }

    fn health(&self) -> &Health {
        &self.exchange.served.pool.endpoints()[self.index].health
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let (served, now) = (self.exchange.served, self.exchange.clock.now());
        let Some(silence) = self.silence() else { return };
        let left = Abandoned { silence, timeout: served.route.timeouts.first_byte, answers: self.answers };
        if self.health().abandoned(now, left) {
            served.abandoned(now, silence);
        }
    }
}

impl Answer {
    /// The answer as it goes to the client. What is held is let go with the last of its body.
    pub(crate) fn into_download(self, max_idle: Duration) -> Response<Download> {
        let Self { response, place, movement } = self;
        response.map(|body| match body {
            Source::Http1(body) => Download::http1(body, movement, place),
            Source::Http2(body) => Download::http2(body, max_idle, movement, place),
        })
    }

    /// The upstream's end of an upgraded connection, and what to hold on to while it is used.
    pub(crate) fn into_upgraded(self) -> (Response<()>, Option<Upgraded>, impl Send + 'static) {
        let (head, body) = self.response.into_parts();
        let upgraded = match body {
            Source::Http1(body) => body.into_upgraded(),
            Source::Http2(_) => None,
        };
        (Response::from_parts(head, ()), upgraded, self.place)
    }
}

fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
}
