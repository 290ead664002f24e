//! One request and its answer: attempts at upstreams, and when another one is safe.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use http::header::UPGRADE;
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use smallvec::SmallVec;
use spile_core::Clock;

use super::errand::Errand;
use crate::body::{Download, Meter, Upload, UploadFailure};
use crate::refusal::Refusal;
use crate::route::Served;
use crate::upstream::{
    Asked, Dialer, Http1, Inbound, Line, Lines, Outstanding, Unanswered, Upgraded, Upstream,
};

/// Kept connections that may turn out to be closing, one after the other.
const MAX_STALE: u32 = 3;

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
    /// In whose name the request waits for its turn.
    pub(crate) caller: Cow<'w, str>,
    pub(crate) clock: &'w dyn Clock,
}

/// An upstream's answer, and the place there that is held until it has been read.
pub(crate) struct Answer {
    pub(crate) response: Response<Source>,
    place: Outstanding,
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Source {
    Http1(Inbound),
    Http2(Incoming),
}

/// An attempt that came to nothing.
struct Failed {
    /// Whether the request may be sent again: none of it was sent, or sending it twice does no harm.
    repeatable: bool,
    reused: Reused,
    why: Refusal,
}

/// Whether the connection had been used before.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Reused {
    No,
    Yes,
    /// It had, and was closing while the request was on its way.
    Stale,
}

impl Exchange<'_> {
    /// The upstream's answer, of whichever upstream gives one.
    pub(crate) async fn run(&self, errand: &mut Errand<'_>, upload: &mut Upload) -> Result<Answer, Refusal> {
        let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
        let mut stale = 0;
        self.served.retries.deposit();
        loop {
            let index = self.served.pool.pick(&tried, self.clock.now());
            let failed = match self.attempt(index, errand, upload).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if !failed.repeatable {
                return Err(failed.why);
            }
            // A kept connection that was closing is nobody's fault, and no retry of the upstream itself.
            if failed.reused == Reused::Stale && stale < MAX_STALE {
                stale += 1;
            } else if self.may_retry(tried.len(), &failed.why) {
                tried.push(index);
            } else {
                return Err(failed.why);
            }
        }
    }

    /// Whether another attempt may be made. What took its full time is not tried again: the upstream may be working
    /// on it still.
    fn may_retry(&self, attempts: usize, why: &Refusal) -> bool {
        let worth_it = matches!(why, Refusal::Unreachable | Refusal::BadAnswer);
        let granted =
            worth_it && attempts < usize::from(self.served.route.retries) && self.served.retries.withdraw();
        self.served.telemetry.retries.increment(u64::from(granted));
        granted
    }

    async fn attempt(
        &self,
        index: usize,
        errand: &mut Errand<'_>,
        upload: &mut Upload,
    ) -> Result<Answer, Failed> {
        let endpoint = &self.served.pool.endpoints()[index];
        let place = match endpoint.enter(&self.caller).await {
            Ok(place) => place,
            Err(why) => return Err(Failed { repeatable: false, reused: Reused::No, why }),
        };
        let attempted = self.attempt_over(index, errand, upload).await;
        match &attempted {
            Ok(_) => endpoint.health.answered(),
            Err(failed) if failed.is_upstreams_fault() => endpoint.health.failed(self.clock.now()),
            Err(_) => {}
        }
        attempted.map(|response| Answer { response, place })
    }

    async fn attempt_over(
        &self,
        index: usize,
        errand: &mut Errand<'_>,
        upload: &mut Upload,
    ) -> Result<Response<Source>, Failed> {
        let upgrades = self.wants_upgrade_over_tls(index, errand.parts);
        let standing = if upgrades { None } else { self.lines[index].standing() };
        let reused = if standing.is_some() { Reused::Yes } else { Reused::No };
        let line = match standing {
            Some(line) => line,
            // Boxed, for TLS takes up much room, and every request would carry it around for the few that dial.
            None => match Box::pin(self.dial(index, upgrades)).await {
                Ok(line) => line,
                Err(why) => return Err(Failed { repeatable: true, reused, why }),
            },
        };
        match line {
            Line::Http1(line) => self.ask_http1(index, line, errand, upload, reused).await,
            // Boxed as well: requests over HTTP/1.1 need none of it.
            Line::Http2(sender) => Box::pin(self.ask_http2(index, sender, errand, upload, reused)).await,
        }
    }

    /// Whether the connection is to become another protocol, and the handshake might agree on HTTP/2, which cannot.
    fn wants_upgrade_over_tls(&self, index: usize, parts: &Parts) -> bool {
        let upstream = &self.served.pool.endpoints()[index].upstream;
        upstream.speaks_tls() && parts.headers.contains_key(UPGRADE)
    }

    async fn dial(&self, index: usize, upgrades: bool) -> Result<Line, Refusal> {
        let upstream = &self.served.pool.endpoints()[index].upstream;
        let within = self.served.route.timeouts.connect;
        let line = if upgrades {
            self.dialer.dial_to_upgrade(upstream, within).await
        } else {
            self.dialer.dial(upstream, within).await
        };
        let line = line.map_err(|_| Refusal::Unreachable)?;
        if let Line::Http2(sender) = &line {
            self.lines[index].keep(Line::Http2(sender.clone()));
        }
        Ok(line)
    }

    async fn ask_http1(
        &self,
        index: usize,
        line: Box<Http1>,
        errand: &Errand<'_>,
        upload: &mut Upload,
        reused: Reused,
    ) -> Result<Response<Source>, Failed> {
        let own = self.served.pool.endpoints()[index].upstream.authority.as_str();
        let host = if self.authority.is_empty() { own } else { self.authority };
        let (parts, push_more) = (&errand.parts, &|lines: &mut Vec<u8>| errand.push_apart(lines));
        let (method, path, headers) = (&parts.method, &self.path, &parts.headers);
        let asked = Asked { method, path, host, headers, push_more };
        let why = match line.ask(asked, upload, &self.served.route.timeouts, &self.lines[index]).await {
            Ok(response) => return Ok(response.map(Source::Http1)),
            Err(why) => why,
        };
        let unsent = matches!(why, Unanswered::Closed { sent: false });
        let stale = reused == Reused::Yes && matches!(why, Unanswered::Closed { .. });
        Err(Failed {
            repeatable: self.meter.is_none() && (unsent || is_idempotent(&parts.method)),
            reused: if stale { Reused::Stale } else { reused },
            why: if matches!(why, Unanswered::Silent) { Refusal::TimedOut } else { self.blame() },
        })
    }

    async fn ask_http2(
        &self,
        index: usize,
        mut sender: http2::SendRequest<Upload>,
        errand: &mut Errand<'_>,
        upload: &mut Upload,
        reused: Reused,
    ) -> Result<Response<Source>, Failed> {
        let repeatable = self.meter.is_none() && is_idempotent(&errand.parts.method);
        let headers = errand.all_fields();
        let headers = if repeatable { headers.clone() } else { mem::take(headers) };
        let mut sent = Request::new(mem::replace(upload, Upload::none()));
        *sent.method_mut() = errand.parts.method.clone();
        *sent.headers_mut() = headers;
        self.address(&mut sent, &self.served.pool.endpoints()[index].upstream);
        let mut answer = std::pin::pin!(sender.try_send_request(sent));
        let first_byte = self.served.route.timeouts.first_byte;
        let (unsent, why) = loop {
            let moved = self.frames_sent();
            match tokio::time::timeout(first_byte, answer.as_mut()).await {
                Ok(Ok(response)) => return Ok(response.map(Source::Http2)),
                Ok(Err(mut error)) => break (error.take_message(), self.blame()),
                Err(_) if self.frames_sent() == moved => break (None, Refusal::TimedOut),
                Err(_) => {}
            }
        };
        let stale = reused == Reused::Yes && matches!(why, Refusal::BadAnswer);
        let repeatable = repeatable || unsent.is_some();
        if let Some(unsent) = unsent {
            let (head, body) = unsent.into_parts();
            (errand.parts.headers, *upload) = (head.headers, body);
        }
        Err(Failed { repeatable, reused: if stale { Reused::Stale } else { reused }, why })
    }

    /// Puts the upstream's own address on a request, in the form that HTTP/2 wants.
    fn address(&self, request: &mut Request<Upload>, upstream: &Upstream) {
        let whole = Uri::builder().scheme(upstream.scheme()).authority(upstream.authority.clone());
        *request.uri_mut() = whole.path_and_query(self.path.clone()).build().unwrap_or_default();
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().remove(http::header::HOST);
    }

    fn frames_sent(&self) -> u32 {
        self.meter.as_ref().map_or(0, |meter| meter.frames())
    }

    /// Whose fault a broken exchange is: a body that the client did not deliver breaks it too.
    fn blame(&self) -> Refusal {
        match self.meter.as_ref().and_then(|meter| meter.failure()) {
            Some(UploadFailure::TooLarge) => Refusal::BodyTooLarge,
            Some(UploadFailure::Stalled) => Refusal::BodyStalled,
            Some(UploadFailure::Broken) => Refusal::Unclear("the body broke off"),
            None => Refusal::BadAnswer,
        }
    }
}

impl Failed {
    /// Whether it says anything about the upstream. A connection that was kept for long may close at any time.
    fn is_upstreams_fault(&self) -> bool {
        let its_doing = matches!(self.why, Refusal::Unreachable | Refusal::BadAnswer | Refusal::TimedOut);
        self.reused == Reused::No && its_doing
    }
}

impl Answer {
    /// The answer as it goes to the client. What is held is let go with the last of its body.
    pub(crate) fn into_download(self, max_idle: Duration) -> Response<Download> {
        let place = self.place;
        self.response.map(|body| match body {
            Source::Http1(body) => Download::http1(body, place),
            Source::Http2(body) => Download::http2(body, max_idle, place),
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
