//! One request and its response: attempts at upstreams, and when another one is safe.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either as EitherFuture;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, Version};
use http_body::Body;
use http_body_util::Either;
use smallvec::{SmallVec, smallvec};
use spile_core::{Clock, Micros};
use spile_listener::{Deadline, FIRST_READ};
use tokio::time::Instant;

use super::outbound_request::OutboundRequest;
use super::retries::{FailedAttempt, RetryState, RetryTarget};
use super::send_progress::SendProgress;
use crate::forward::body::{
    Activity, Download, ResponseBody, SharedIdleTimer, Upload, UploadError, UploadProgress,
};
use crate::limit::CallerKey;
use crate::refusal::GatewayRefusal;
use crate::route::{Route, RouteState};
use crate::upstream::{
    AbandonedRequest, AttemptError, ConnectPurpose, ConnectionPool, Connector, Http1Body, Http1Connection,
    Http1Request, Http2Body, Http2Stream, InFlightRequest, NewConnection, ReadyConnection, UpgradedUpstream,
    UpstreamEndpoint,
};

/// How long an idle HTTP/2 connection may take to answer a ping before it is used again.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);
/// If a pooled connection closes within this time after it was used, the upstream had closed it earlier. If it takes
/// longer, the request is assumed to be the cause. A packet takes this long around the world and back.
const STALE_WITHIN: Duration = Duration::from_millis(500);

/// Sends a request to one of a route's upstreams, with retries.
pub(crate) struct ProxyExchange<'w> {
    pub(crate) route: &'w RouteState,
    /// One pool for each endpoint of the route, in the same order.
    pub(crate) pools: &'w [Arc<ConnectionPool>],
    pub(crate) connector: &'w Connector,
    /// The host that the client asked for, with its port.
    pub(crate) authority: &'w str,
    pub(crate) path: PathAndQuery,
    /// `None` if the request has no body.
    pub(crate) progress: Option<Arc<UploadProgress>>,
    /// Who the request counts for in the queue of an upstream. `None` if the route has no cap.
    pub(crate) caller: Option<CallerKey>,
    /// `None` if the cost of the request is not read from its answer.
    pub(crate) sent: Option<&'w SendProgress>,
    pub(crate) clock: &'w dyn Clock,
}

/// A response, and the request in flight, which is held until the body has been read.
pub(crate) struct UpstreamResponse {
    pub(crate) response: Response<UpstreamBody>,
    in_flight: InFlightRequest,
    activity: Activity,
}

/// Why there is no response, and the upstream that was tried last.
#[derive(Debug)]
pub(crate) struct FailedExchange {
    pub(crate) refusal: GatewayRefusal,
    /// `None` if no upstream was tried.
    pub(crate) last_attempt: Option<(Arc<UpstreamEndpoint>, AttemptError)>,
}

/// The body of a response.
#[derive(Debug)]
pub(crate) enum UpstreamBody {
    Http1(Http1Body),
    Http2(Http2Body),
}

impl ProxyExchange<'_> {
    /// The response of an upstream, within the route's timeouts.
    pub(crate) async fn run(
        &self,
        outbound: &mut OutboundRequest<'_>,
        upload: &mut Upload,
        deadline: &mut Deadline,
    ) -> Result<UpstreamResponse, FailedExchange> {
        self.route.retries.deposit();
        let mut sent_at = self.clock.now();
        let answer = self.run_attempts(outbound, upload, deadline, &mut sent_at).await;
        let now = self.clock.now();
        let outcome =
            answer.as_ref().map(|answer| answer.response.status()).map_err(|failed| &failed.refusal);
        self.route.observe(now, self.upstream_time(sent_at, now), outcome);
        answer
    }

    /// Makes attempts until one gets a response or no more are allowed. `sent_at` is when the first one started, moved
    /// forward by the time spent in the queue.
    async fn run_attempts(
        &self,
        outbound: &mut OutboundRequest<'_>,
        upload: &mut Upload,
        deadline: &mut Deadline,
        sent_at: &mut Micros,
    ) -> Result<UpstreamResponse, FailedExchange> {
        let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
        let (mut retry_state, mut retry) = (RetryState::default(), None);
        let (balancer, mut now) = (&self.route.balancer, *sent_at);
        loop {
            // In a block, so that the future keeps no candidates while it waits for the upstream.
            let (index, in_flight) = {
                let candidates = match (retry, tried.last()) {
                    (Some(RetryTarget::SameUpstream), Some(&last)) => smallvec![last],
                    _ => balancer.pick(&tried, now),
                };
                match &self.caller {
                    None => (candidates[0], balancer.endpoints()[candidates[0]].start_request(None)),
                    Some(caller) => {
                        let acquired = deadline.run(balancer.acquire(&candidates, caller)).await;
                        let acquired = acquired.unwrap_or(Err(GatewayRefusal::Busy))?;
                        let waited = Duration::from_micros(self.clock.now().since_us(now));
                        (*sent_at, now) = (*sent_at + waited, now + waited);
                        acquired
                    }
                }
            };
            let attempt = Attempt::new(self, index, now);
            let answer = attempt.run(retry.is_none(), outbound, upload, deadline).await;
            // It has ended: its drop is for a client that disconnects before that.
            mem::forget(attempt);
            let failed = match answer {
                Ok(response) => {
                    let activity = self.progress.as_ref().map(|progress| progress.activity());
                    return Ok(UpstreamResponse {
                        response,
                        in_flight,
                        activity: activity.unwrap_or_default(),
                    });
                }
                Err(failed) => failed,
            };
            if let Some(sent) = self.sent {
                sent.end(failed.why.did_not_run() || failed.why == AttemptError::Unsendable);
            }
            retry = self.next_try(&mut retry_state, failed);
            if retry.is_none() {
                let last_attempt = Some((Arc::clone(&balancer.endpoints()[index]), failed.why));
                return Err(FailedExchange { refusal: self.refusal(failed.why), last_attempt });
            }
            tried.push(index);
            now = self.clock.now();
        }
    }

    /// Where the request is retried, if it is.
    fn next_try(&self, retry_state: &mut RetryState, failed: FailedAttempt) -> Option<RetryTarget> {
        let before = retry_state.retries_made();
        let retry = retry_state.next(failed, self.route.settings.retries, &self.route.retries);
        self.route.metrics.retries.increment(u64::from(retry_state.retries_made() - before));
        retry
    }

    /// The time since `sent_at` that upstreams took, without the time that they waited for the client's body.
    fn upstream_time(&self, sent_at: Micros, now: Micros) -> Duration {
        Duration::from_micros(now.since_us(sent_at)).saturating_sub(self.waited())
    }

    /// How long the client's body was waited for.
    fn waited(&self) -> Duration {
        self.progress.as_ref().map_or(Duration::ZERO, |progress| progress.waited())
    }

    /// The refusal after the total timeout, if the upstream did not use up most of it.
    fn deadline_refusal(&self) -> GatewayRefusal {
        let route = &self.route.settings;
        match route.timeouts.total {
            Some(total) if self.waited() >= total / 2 => GatewayRefusal::BodyStalled,
            _ if route.concurrency.is_some() => GatewayRefusal::Busy,
            _ => GatewayRefusal::TimedOut,
        }
    }

    /// The refusal for the client. If its own body failed, that is the reason.
    fn refusal(&self, why: AttemptError) -> GatewayRefusal {
        let upload = self.progress.as_ref().and_then(|progress| progress.failure());
        match (why, upload) {
            (AttemptError::TimedOut, _) => GatewayRefusal::TimedOut,
            (AttemptError::Unreachable | AttemptError::NotConnected, _) => GatewayRefusal::Unreachable,
            (AttemptError::Unsendable, _) => {
                GatewayRefusal::BadRequest("the request cannot be sent over HTTP/2")
            }
            (AttemptError::NoLocalResources, _) => GatewayRefusal::NoLocalResources,
            (_, Some(UploadError::TooLarge)) => GatewayRefusal::BodyTooLarge,
            (_, Some(UploadError::Stalled)) | (AttemptError::RequestBody, None) => {
                GatewayRefusal::BodyStalled
            }
            (_, Some(UploadError::Broken)) => GatewayRefusal::BadRequest("the body broke off"),
            (AttemptError::DeadlineExceeded, None) => self.deadline_refusal(),
            (_, None) => GatewayRefusal::BadAnswer,
        }
    }
}

/// One attempt at one upstream. If it is dropped before there is a response, the client has disconnected.
struct Attempt<'a> {
    exchange: &'a ProxyExchange<'a>,
    endpoint: &'a UpstreamEndpoint,
    pool: &'a Arc<ConnectionPool>,
    sent_at: Micros,
    /// When it started by the machine's clock. The gateway's clock may be a fake one.
    started: Instant,
    /// `answers()` of the endpoint's health before the attempt.
    answers: usize,
}

impl<'a> Attempt<'a> {
    fn new(exchange: &'a ProxyExchange<'a>, index: usize, sent_at: Micros) -> Self {
        let (endpoint, pool) = (&*exchange.route.balancer.endpoints()[index], &exchange.pools[index]);
        let (started, answers) = (Instant::now(), endpoint.health.answers());
        Self { exchange, endpoint, pool, sent_at, started, answers }
    }

    const fn settings(&self) -> &'a Route {
        &self.exchange.route.settings
    }

    /// The response of the upstream, over a pooled connection if it `may_reuse` one.
    async fn run(
        &self,
        may_reuse: bool,
        outbound: &mut OutboundRequest<'_>,
        upload: &mut Upload,
        deadline: &mut Deadline,
    ) -> Result<Response<UpstreamBody>, FailedAttempt> {
        let mut reused = false;
        let sending = self.start(may_reuse, &mut reused, outbound, upload);
        match deadline.run(sending).await.unwrap_or_else(|| Err(self.deadline_error())) {
            Ok(response) => {
                self.endpoint.health.record_answer(self.sent_at);
                Ok(response)
            }
            Err(why) => Err(self.failure(why, reused, outbound, upload)),
        }
    }

    /// Sends the request, and reports at once whether the connection came from the pool. Not an `async fn`, whose future would keep what
    /// is only needed to begin.
    fn start<'s>(
        &'s self,
        may_reuse: bool,
        reused: &'s mut bool,
        outbound: &'s mut OutboundRequest<'_>,
        upload: &'s mut Upload,
    ) -> impl Future<Output = Result<Response<UpstreamBody>, AttemptError>> + Send + 's {
        // An upgrade must not agree on HTTP/2 in the handshake, because HTTP/2 has no upgrades.
        let upgrades = self.endpoint.upstream.speaks_tls() && outbound.parts.headers.contains_key(UPGRADE);
        let pooled = if upgrades || !may_reuse { None } else { self.pool.checkout() };
        *reused = pooled.is_some();
        match pooled {
            Some(ReadyConnection::Http1(connection)) => {
                EitherFuture::Left(self.send_http1(connection, outbound, upload))
            }
            // Boxed, so that the futures of most requests stay small: each is moved several times before it is polled.
            other => EitherFuture::Right(Box::pin(self.send(other, reused, upgrades, outbound, upload))),
        }
    }

    /// Sends the request over the pooled connection if it is alive, else over a new one. `reused` becomes false then.
    async fn send(
        &self,
        pooled: Option<ReadyConnection>,
        reused: &mut bool,
        upgrades: bool,
        outbound: &mut OutboundRequest<'_>,
        upload: &mut Upload,
    ) -> Result<Response<UpstreamBody>, AttemptError> {
        if let Some(ReadyConnection::Http2(_)) = pooled {
            let (connector, within) = (self.exchange.connector, self.settings().timeouts.connect);
            self.pool.add_missing_address(connector, &self.endpoint.upstream, within);
        }
        let connection = if let Some(connection) = self.check_alive(pooled).await {
            connection
        } else {
            *reused = false;
            // Boxed, because TLS makes the future large, and few requests open a connection.
            Box::pin(self.connect(upgrades)).await?
        };
        match connection {
            ReadyConnection::Http1(connection) => self.send_http1(connection, outbound, upload).await,
            ReadyConnection::Http2(stream) => self.send_http2(stream, outbound, upload).await,
        }
    }

    /// The connection, unless it was idle for long and does not answer a ping.
    async fn check_alive(&self, pooled: Option<ReadyConnection>) -> Option<ReadyConnection> {
        match pooled? {
            ReadyConnection::Http2(stream) => {
                let within = self.settings().timeouts.connect.min(ALIVE_WITHIN);
                stream.is_alive(within).await.then_some(ReadyConnection::Http2(stream))
            }
            connection @ ReadyConnection::Http1(_) => Some(connection),
        }
    }

    /// Opens a connection. Of those that may speak HTTP/2, one is opened at a time, for all waiting requests to share.
    async fn connect(&self, upgrades: bool) -> Result<ReadyConnection, AttemptError> {
        let pool = self.pool;
        let is_shared = || !upgrades && self.endpoint.upstream.may_speak_http2() && pool.expects_http2();
        if !is_shared() {
            return self.connect_now(upgrades).await;
        }
        let waited = tokio::time::timeout(self.settings().timeouts.connect, pool.lock_connect()).await;
        match pool.checkout_stream() {
            Some(stream) => Ok(ReadyConnection::Http2(stream)),
            // Another request is still connecting, and records a failure of the upstream if it fails.
            None if waited.is_err() => Err(AttemptError::NotConnected),
            None => {
                let lock = waited.ok().filter(|_| is_shared());
                let connection = self.connect_now(upgrades).await;
                drop(lock);
                connection
            }
        }
    }

    async fn connect_now(&self, upgrades: bool) -> Result<ReadyConnection, AttemptError> {
        let (upstream, within) = (&self.endpoint.upstream, self.settings().timeouts.connect);
        let purpose = if upgrades { ConnectPurpose::Upgrade } else { ConnectPurpose::Request };
        match self.exchange.connector.connect(upstream, purpose, within).await {
            // An upstream that only speaks HTTP/2 is still healthy.
            Err(_) if upgrades => Err(AttemptError::NotConnected),
            Err(why) => {
                self.endpoint.health.note_connect_error(&why);
                Err(why.outcome())
            }
            Ok(NewConnection::Http1(connection)) => {
                if !upgrades {
                    self.pool.expect_http1();
                }
                Ok(ReadyConnection::Http1(connection))
            }
            Ok(NewConnection::Http2(connection)) => {
                self.pool.add_http2(connection).map(ReadyConnection::Http2).ok_or(AttemptError::Unreachable)
            }
        }
    }

    async fn send_http1(
        &self,
        connection: Box<Http1Connection>,
        outbound: &OutboundRequest<'_>,
        upload: &mut Upload,
    ) -> Result<Response<UpstreamBody>, AttemptError> {
        let (exchange, parts, settings) = (self.exchange, &outbound.parts, self.settings());
        self.begin_send();
        let own = self.endpoint.upstream.authority.as_str();
        let request = Http1Request {
            method: &parts.method,
            path: &exchange.path,
            host: if exchange.authority.is_empty() { own } else { exchange.authority },
            headers: &parts.headers,
            // A client of HTTP/2 may send many requests and read no response, so less is buffered for each.
            read_at_most: if parts.version == Version::HTTP_2 { FIRST_READ } else { usize::MAX },
            write_more: &|text: &mut Vec<u8>| outbound.write_separate_fields(text),
            await_answer: settings.cost_from_response.is_some(),
        };
        let answer = connection.send(request, upload, &settings.timeouts, self.pool).await;
        answer.map(|response| response.map(UpstreamBody::Http1))
    }

    async fn send_http2(
        &self,
        stream: Http2Stream,
        outbound: &mut OutboundRequest<'_>,
        upload: &mut Upload,
    ) -> Result<Response<UpstreamBody>, AttemptError> {
        let mut head = Request::new(());
        *head.method_mut() = outbound.parts.method.clone();
        // The original is kept for another attempt.
        *head.headers_mut() = outbound.merged_headers().clone();
        // HTTP/2 has no upgrades. The upstream responds as if the client had not asked for one.
        for name in [CONNECTION, UPGRADE, HOST] {
            head.headers_mut().remove(name);
        }
        *head.uri_mut() = self.endpoint.upstream.uri(&self.exchange.path);
        *head.version_mut() = Version::HTTP_2;
        let Route { timeouts, cost_from_response, .. } = self.settings();
        self.begin_send();
        let answer = stream.send(head, upload, timeouts, cost_from_response.is_some()).await;
        answer.map(|response| response.map(UpstreamBody::Http2))
    }

    fn begin_send(&self) {
        if let Some(sent) = self.exchange.sent {
            sent.begin();
        }
    }

    fn failure(
        &self,
        why: AttemptError,
        reused: bool,
        outbound: &OutboundRequest<'_>,
        upload: &Upload,
    ) -> FailedAttempt {
        let progress = self.exchange.progress.as_deref();
        let closed_at_once =
            self.started.elapsed() <= STALE_WITHIN && matches!(why, AttemptError::Closed { .. });
        let stale = reused && closed_at_once;
        if why.is_upstreams_fault(stale) {
            self.endpoint.health.record_failure(self.exchange.clock.now(), why);
        }
        let body_unused = progress.is_none_or(|progress| progress.frames() == 0 && !upload.is_end_stream());
        let idempotent = progress.is_none() && is_idempotent(&outbound.parts.method);
        FailedAttempt { why, stale, body_unused, idempotent }
    }

    /// The error after the total timeout.
    fn deadline_error(&self) -> AttemptError {
        let total = self.settings().timeouts.total.unwrap_or_default();
        match self.silence() {
            None => AttemptError::RequestBody,
            Some(silence) if silence >= total / 2 => AttemptError::TimedOut,
            Some(_) => AttemptError::DeadlineExceeded,
        }
    }

    /// How long the upstream has been silent. `None` if it waits for the client's body.
    fn silence(&self) -> Option<Duration> {
        let elapsed = self.started.elapsed();
        match &self.exchange.progress {
            None => Some(elapsed),
            Some(progress) => (!progress.is_waiting()).then(|| elapsed.min(progress.idle_for())),
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let (route, now) = (self.exchange.route, self.exchange.clock.now());
        let Some(silence) = self.silence() else { return };
        let timeout = self.settings().timeouts.first_byte;
        let request = AbandonedRequest { silence, timeout, answers: self.answers };
        if self.endpoint.health.record_abandoned(now, request) {
            route.record_abandoned(now, silence);
        }
    }
}

impl From<GatewayRefusal> for FailedExchange {
    fn from(refusal: GatewayRefusal) -> Self {
        Self { refusal, last_attempt: None }
    }
}

impl UpstreamResponse {
    /// The upstream that responded.
    pub(crate) fn endpoint(&self) -> &UpstreamEndpoint {
        self.in_flight.endpoint()
    }

    /// The response for the client. The request in flight ends with the body.
    pub(crate) fn into_download(self, max_idle: Duration) -> Response<ResponseBody> {
        let Self { response, in_flight, activity } = self;
        response.map(|body| {
            Either::Right(match body {
                UpstreamBody::Http1(body) => Download::http1(body, activity, in_flight),
                UpstreamBody::Http2(body) => {
                    Download::http2(body, SharedIdleTimer::after(max_idle, activity), in_flight)
                }
            })
        })
    }

    /// The upstream's side of an upgraded connection, and a guard to hold while it is used.
    pub(crate) fn into_upgraded(self) -> (Response<()>, Option<UpgradedUpstream>, impl Send + 'static) {
        let (head, body) = self.response.into_parts();
        let upgraded = match body {
            UpstreamBody::Http1(body) => body.into_upgraded(),
            UpstreamBody::Http2(_) => None,
        };
        (Response::from_parts(head, ()), upgraded, self.in_flight)
    }
}

fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
}
