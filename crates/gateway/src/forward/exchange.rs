//! One request and its answer: attempts at upstreams, and when another one is safe.

use std::sync::Arc;
use std::time::Duration;

use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use smallvec::SmallVec;
use spile_core::Clock;

use super::fields;
use crate::body::{Download, Meter, OnEnd, Upload, UploadFailure};
use crate::refusal::Refusal;
use crate::route::Served;
use crate::upstream::{Dialer, Line, Lines, Outstanding, Upstream};

/// A connection that was in use so recently is not one that the upstream is about to close for being idle.
const SURELY_OPEN: Duration = Duration::from_secs(1);
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
    pub(crate) caller: &'w str,
    pub(crate) clock: &'w dyn Clock,
}

/// An upstream's answer, and what is held there until it has been read.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    held: Held,
}

/// An attempt that came to nothing.
struct Failed {
    /// The request, where it may be sent again: none of it was sent, or sending it twice does no harm.
    again: Option<Request<Upload>>,
    /// Whether the connection had been used before, and may have been closing while the request was on its way.
    reused: bool,
    why: Refusal,
}

impl Exchange<'_> {
    /// The upstream's answer, of whichever upstream gives one.
    pub(crate) async fn run(&self, mut request: Request<Upload>) -> Result<Answer, Refusal> {
        let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
        let mut stale = 0;
        self.served.retries.deposit();
        loop {
            let index = self.served.pool.pick(&tried, self.clock.now());
            let failed = match self.attempt(index, request).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if failed.was_stale() && stale < MAX_STALE {
                stale += 1;
            } else if self.may_retry(tried.len(), &failed.why) {
                tried.push(index);
            } else {
                return Err(failed.why);
            }
            let Some(again) = failed.again else { return Err(failed.why) };
            request = again;
        }
    }

    /// A copy of a request that may be sent twice: idempotent, and without a body that could be sent only once. None
    /// is made where it would hardly ever be used: over a connection that was in use just now, to the only upstream.
    fn spare(&self, request: &Request<Upload>, idle: Duration) -> Option<Request<Upload>> {
        let useful = idle > SURELY_OPEN || self.served.pool.endpoints().len() > 1;
        let repeatable = self.meter.is_none() && is_idempotent(request.method());
        (useful && repeatable).then(|| {
            let mut copy = Request::new(Upload::none());
            *copy.method_mut() = request.method().clone();
            *copy.headers_mut() = request.headers().clone();
            copy
        })
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

    async fn attempt(&self, index: usize, request: Request<Upload>) -> Result<Answer, Failed> {
        let endpoint = &self.served.pool.endpoints()[index];
        let place = match endpoint.enter(self.caller).await {
            Ok(place) => place,
            Err(why) => return Err(Failed { again: None, reused: false, why }),
        };
        let attempted = self.attempt_in(place, index, request).await;
        match &attempted {
            Ok(_) => endpoint.health.answered(),
            Err(failed) if failed.is_upstreams_fault() => endpoint.health.failed(self.clock.now()),
            Err(_) => {}
        }
        attempted
    }

    async fn attempt_in(
        &self,
        place: Outstanding,
        index: usize,
        mut request: Request<Upload>,
    ) -> Result<Answer, Failed> {
        let endpoint = &self.served.pool.endpoints()[index];
        let standing = self.lines[index].standing().await;
        let reused = standing.is_some();
        let (mut line, idle) = match standing {
            Some(standing) => standing,
            // Boxed, for TLS takes up much room, and every request would carry it around for the few that dial.
            None => match Box::pin(self.dial(index)).await {
                Ok(line) => (line, Duration::ZERO),
                Err(why) => return Err(Failed { again: Some(request), reused, why }),
            },
        };
        self.address(&mut request, &endpoint.upstream, line.is_http2());
        let spare = self.spare(&request, idle);
        match self.answered(&mut line, request).await {
            Ok(response) => Ok(self.hold(response, index, line, place)),
            Err((unsent, why)) => Err(Failed { again: unsent.or(spare), reused, why }),
        }
    }

    async fn dial(&self, index: usize) -> Result<Line, Refusal> {
        let upstream = &self.served.pool.endpoints()[index].upstream;
        let line = self.dialer.dial(upstream, self.served.route.timeouts.connect).await;
        let line = line.map_err(|_| Refusal::Unreachable)?;
        if let Line::Http2(sender) = &line {
            self.lines[index].keep(Line::Http2(sender.clone()));
        }
        Ok(line)
    }

    /// Puts the upstream's own address on the request, in the form that its protocol wants.
    fn address(&self, request: &mut Request<Upload>, upstream: &Upstream, http2: bool) {
        let path = self.path.clone();
        if http2 {
            let whole = Uri::builder().scheme(upstream.scheme()).authority(upstream.authority.clone());
            *request.uri_mut() = whole.path_and_query(path).build().unwrap_or_default();
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().remove(http::header::HOST);
        } else {
            let host = if self.authority.is_empty() { upstream.authority.as_str() } else { self.authority };
            *request.uri_mut() = Uri::from(path);
            *request.version_mut() = Version::HTTP_11;
            fields::write_host(request.headers_mut(), host);
        }
    }

    /// The answer's header, unless the upstream is silent for too long while nothing of the body moves either.
    async fn answered(
        &self,
        line: &mut Line,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, (Option<Request<Upload>>, Refusal)> {
        let mut answer = std::pin::pin!(line.send(request));
        loop {
            let moved = self.frames_sent();
            match tokio::time::timeout(self.served.route.timeouts.first_byte, answer.as_mut()).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(mut error)) => return Err((error.take_message(), self.blame())),
                Err(_) if self.frames_sent() == moved => return Err((None, Refusal::TimedOut)),
                Err(_) => {}
            }
        }
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

    fn hold(&self, response: Response<Incoming>, index: usize, line: Line, place: Outstanding) -> Answer {
        let lines = Arc::clone(&self.lines[index]);
        Answer { response, held: Held { line, lines, meter: self.meter.clone(), _place: place } }
    }
}

impl Failed {
    /// Whether all that went wrong may be that a kept connection was being closed just then. That is nobody's fault,
    /// and no retry of the upstream itself.
    const fn was_stale(&self) -> bool {
        self.reused && matches!(self.why, Refusal::BadAnswer)
    }

    /// Whether it says anything about the upstream. A connection that was kept for long may close at any time.
    const fn is_upstreams_fault(&self) -> bool {
        !self.reused && matches!(self.why, Refusal::Unreachable | Refusal::BadAnswer | Refusal::TimedOut)
    }
}

impl Answer {
    /// The answer as it goes to the client. What is held is let go with the last of its body.
    pub(crate) fn into_download(self, max_idle: Duration) -> Response<Download> {
        let held = Box::new(self.held);
        self.response.map(|body| Download::new(body, max_idle, held))
    }

    /// The upstream's end of an upgraded connection, and what to hold on to while it is used.
    pub(crate) fn into_upgraded(mut self) -> (Response<Incoming>, Option<OnUpgrade>, impl Send + 'static) {
        let upgraded = self.response.extensions_mut().remove::<OnUpgrade>();
        (self.response, upgraded, self.held)
    }
}

/// A connection that is in use, and a place at its upstream.
struct Held {
    line: Line,
    lines: Arc<Lines>,
    meter: Option<Arc<Meter>>,
    _place: Outstanding,
}

impl OnEnd for Held {
    fn whole(self: Box<Self>) {
        // An answer may come before the request is through. What is left of it would hold up the next one.
        let request_is_through = self.meter.as_ref().is_none_or(|meter| meter.is_done());
        if request_is_through && !self.line.is_http2() {
            self.lines.keep(self.line);
        }
    }
}

fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE
    )
}
