//! One request and its answer: attempts at upstreams, and when another one is safe.

use std::sync::Arc;

use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use smallvec::SmallVec;

use super::fields;
use crate::body::{Download, Meter, OnEnd, Upload, UploadFailure};
use crate::refusal::Refusal;
use crate::route::Served;
use crate::upstream::{Dialer, Line, Lines, Outstanding, Upstream};

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
}

/// An attempt that came to nothing.
struct Failed {
    /// The request, where none of it was sent.
    unsent: Option<Request<Upload>>,
    /// Whether the connection had been used before, and may have been closing while the request was on its way.
    reused: bool,
    why: Refusal,
}

impl Exchange<'_> {
    /// The upstream's answer. What it holds at the upstream is let go with the answer's body.
    pub(crate) async fn run(&self, mut request: Request<Upload>) -> Result<Response<Download>, Refusal> {
        let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
        self.served.retries.deposit();
        loop {
            let index = self.served.pool.pick(&tried);
            let spare = self.spare(&request);
            match self.attempt(index, request).await {
                Ok(response) => return Ok(response),
                Err(failed) => {
                    let again = failed.unsent.or(spare);
                    match again.filter(|_| failed.reused || self.may_retry(tried.len(), &failed.why)) {
                        Some(again) => request = again,
                        None => return Err(failed.why),
                    }
                    if !failed.reused {
                        tried.push(index);
                    }
                }
            }
        }
    }

    /// A copy of a request that may be sent twice: idempotent, and without a body that could be sent only once.
    fn spare(&self, request: &Request<Upload>) -> Option<Request<Upload>> {
        let repeatable = self.meter.is_none() && is_idempotent(request.method());
        repeatable.then(|| {
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
        worth_it && attempts < self.served.route.retries as usize && self.served.retries.withdraw()
    }

    async fn attempt(
        &self,
        index: usize,
        mut request: Request<Upload>,
    ) -> Result<Response<Download>, Failed> {
        let endpoint = &self.served.pool.endpoints()[index];
        let place = endpoint.enter();
        let standing = self.lines[index].standing().await;
        let reused = standing.is_some();
        let mut line = match standing {
            Some(line) => line,
            None => match self.dial(index).await {
                Ok(line) => line,
                Err(why) => return Err(Failed { unsent: Some(request), reused, why }),
            },
        };
        self.address(&mut request, &endpoint.upstream, line.is_http2());
        match self.answered(&mut line, request).await {
            Ok(response) => Ok(self.hold(response, index, line, place)),
            Err((unsent, why)) => Err(Failed { unsent, reused, why }),
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

    fn hold(
        &self,
        response: Response<Incoming>,
        index: usize,
        line: Line,
        place: Outstanding,
    ) -> Response<Download> {
        let lines = Arc::clone(&self.lines[index]);
        let held = Box::new(Held { line, lines, meter: self.meter.clone(), _place: place });
        response.map(|body| Download::new(body, self.served.route.timeouts.idle, held))
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
