//! How a worker handles one request: target, route, caller, limits, upstream, response.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::Either as EitherFuture;
use http::header::{CONNECTION, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::{Either, Full};
use spile_core::{Amount, Micros, Store};
use spile_listener::{ClientBody, ConnectionPlace, Deadline, RequestOrigin, is_only_chunked};
use spile_observe::trace::{SpanKind, Tracer, note, note_method};
use spile_policy::{Credential, Facts, PolicyRefusal};
use spile_tower::cost::CostSource;
use spile_tower::response::is_grpc;

use super::ActiveConfig;
use super::priced::PricedRequest;
use super::settle::AnswerHead;
use super::trace::{note_exchange, note_matched, write_traceparent};
use super::worker::Worker;
use crate::access_log::AccessRecord;
use crate::auth::{AuthAttempt, AuthError, Caller, Downstream};
use crate::forward::body::{AnswerMeter, ResponseBody, Upload, UploadProgress, discard};
use crate::forward::headers::{ForwardingHeaders, RequestId, sanitize};
use crate::forward::{
    FailedExchange, OutboundRequest, ProxyExchange, SendProgress, UpgradeRequest, UpstreamResponse, tunnel,
};
use crate::limit::{CallerKey, RateDecision};
use crate::refusal::GatewayRefusal;
use crate::route::{RequestTarget, Route, RouteState, upstream_path};
use crate::upstream::{AttemptError, UpstreamEndpoint, header_maps};

/// The facts of a request that its response needs, even if the request is refused at once.
pub(super) struct RequestContext {
    id: RequestId,
    /// Whether the request is a gRPC call, whose refusals are gRPC statuses.
    grpc: bool,
    /// For the access log. Empty without one.
    record: AccessRecord,
    /// The upstream that was tried last, and why it did not respond. Boxed, to keep futures small.
    failure: Option<Box<(Arc<UpstreamEndpoint>, AttemptError)>>,
}

/// A request that may be forwarded.
pub(super) struct AdmittedRequest {
    target: RequestTarget,
    pub(super) route: usize,
    pub(super) caller: Caller,
    /// `None` if no limit applies.
    pub(super) decision: Option<Box<RateDecision>>,
}

/// A request that is refused, and its charges so far.
struct RejectedRequest {
    why: GatewayRefusal,
    decision: Option<Box<RateDecision>>,
    /// `None` if it was refused before a route was found.
    route: Option<usize>,
}

impl<S: Store + 'static> Worker<S> {
    /// The response to a request.
    #[expect(clippy::manual_async_fn, reason = "an async fn would keep its arguments twice in its future")]
    pub(super) fn respond(
        self: Arc<Self>,
        origin: RequestOrigin,
        place: Option<ConnectionPlace>,
        mut parts: Parts,
        body: ClientBody,
    ) -> impl Future<Output = Response<ResponseBody>> + Send {
        async move {
            let started = self.gateway.clock.now();
            let config = self.config.load_full();
            let downstream = config.trusted_proxies.downstream(origin.peer, origin.secure, &parts.headers);
            let id = RequestId::of(&parts.headers, downstream.trusted);
            let record = match &self.gateway.access_log {
                None => AccessRecord::default(),
                Some(log) => log.record(started, downstream.client, &parts, &id),
            };
            let mut context = RequestContext { id, grpc: is_grpc(&parts.headers), record, failure: None };
            // Only a body of unknown length can have a transfer coding, so most requests skip the check.
            if !origin.ambiguous && body.size_hint().exact().is_none() && !is_only_chunked(&parts.headers) {
                let refusal = Err(GatewayRefusal::UnsupportedCoding);
                return self.finish_response(&config, context, &parts, None, None, refusal);
            }
            let admitting = self.admit(&config, origin, &downstream, &mut parts, &mut context, started);
            let mut admitted = match admitting.await {
                Ok(admitted) => admitted,
                Err(RejectedRequest { why, decision, route }) => {
                    let reusable = !origin.ambiguous && discard(body, &parts);
                    let mut response =
                        self.finish_response(&config, context, &parts, route, decision.as_deref(), Err(why));
                    if !reusable {
                        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    return response;
                }
            };
            if config.route(admitted.route).answer_costs.is_some() && admitted.decision.is_some() {
                let request = (parts, body);
                return Box::pin(self.proxy_priced(config, admitted, downstream, context, place, request))
                    .await;
            }
            let proxied =
                self.proxy(&config, &mut admitted, &downstream, &mut context, &mut parts, body, None);
            let result = proxied.await;
            header_maps::recycle(mem::take(&mut parts.headers));
            let (route, decision) = (Some(admitted.route), admitted.decision.as_deref());
            self.finish_response(&config, context, &parts, route, decision, result)
        }
    }

    /// The response as the client gets it: refusals rendered, and the gateway's own header fields added.
    pub(super) fn finish_response(
        &self,
        config: &ActiveConfig,
        mut context: RequestContext,
        request: &Parts,
        route: Option<usize>,
        decision: Option<&RateDecision>,
        result: Result<Response<ResponseBody>, GatewayRefusal>,
    ) -> Response<ResponseBody> {
        let route = route.map(|route| &config.route(route).settings);
        let refused = result.is_err();
        let cause = result.as_ref().err().map(|why| (why.status(), why.cause()));
        let mut response = result.unwrap_or_else(|why| config.refuse(why, route, context.grpc).map(own_body));
        // A refusal holds no permit: its work is done.
        if let (Some(decision), Either::Right(download)) = (decision, response.body_mut()) {
            download.hold(decision.take_permit());
        }
        if let Some(decision) = decision
            && route.is_none_or(|route| route.rate_limit_headers)
        {
            self.gateway.limits.write_headers(decision, response.headers_mut());
        }
        context.id.write(response.headers_mut());
        match route.map(|route| &route.response_changes).filter(|changes| !changes.is_empty()) {
            Some(changes) if refused => changes.apply_to_own(response.headers_mut()),
            Some(changes) => changes.apply(response.headers_mut()),
            None => {}
        }
        if let Some((status, cause)) = cause.filter(|(status, _)| status.is_server_error()) {
            self.log_refusal(&context, request, route, status, cause);
        }
        if context.record.is_empty() {
            return response;
        }
        context.record.answered(response.status(), cause);
        response.map(|body| match body {
            Either::Left(own) => {
                let sends_body = request.method != Method::HEAD;
                context.record.sent(own.size_hint().exact().filter(|_| sends_body).unwrap_or_default());
                Either::Left(own)
            }
            Either::Right(download) => Either::Right(download.with_record(context.record)),
        })
    }

    /// Logs that the gateway itself responded with 5xx, and why.
    #[cold]
    fn log_refusal(
        &self,
        context: &RequestContext,
        request: &Parts,
        route: Option<&Route>,
        status: StatusCode,
        cause: &'static str,
    ) {
        self.gateway.refusal_log.record(self.gateway.clock.now(), || {
            let request_id = String::from_utf8_lossy(context.id.as_bytes());
            let failure = context.failure.as_deref();
            // Fields that are text are written between quotes, with everything escaped that is not printable.
            tracing::warn!(
                target: "spile::gateway",
                request_id = &*request_id,
                status = status.as_u16(),
                method = request.method.as_str(),
                path = &*printable(request.uri.path()),
                route = route.map(|route| &*route.name),
                upstream = failure.map(|(endpoint, _)| endpoint.label()),
                cause = failure.map_or_else(|| cause.to_owned(), |(endpoint, why)| endpoint.health.cause(*why)),
                "{cause}"
            );
        });
    }

    /// Decides whether a request may be forwarded, before any of its body is read.
    ///
    /// Limits are charged before a wrong credential is refused, so that guesses at credentials are limited too.
    async fn admit(
        &self,
        config: &ActiveConfig,
        origin: RequestOrigin,
        downstream: &Downstream,
        request: &mut Parts,
        context: &mut RequestContext,
        now: Micros,
    ) -> Result<AdmittedRequest, RejectedRequest> {
        if origin.ambiguous {
            return Err(GatewayRefusal::AmbiguousFraming.into());
        }
        if sanitize::is_loop(&request.headers) {
            return Err(GatewayRefusal::Loop.into());
        }
        let gateway = &*self.gateway;
        let target = RequestTarget::of(request, &gateway.bounds)?;
        let index = config.table.find(&target).ok_or(GatewayRefusal::NoRoute)?;
        let route = config.route(index);
        if gateway.tracer.is_some() {
            note_matched(&route.settings);
        }
        if route.settings.refuses_upgrades() && UpgradeRequest::is_in(request, &route.settings.upgrades) {
            let why = GatewayRefusal::UnpricedUpgrade;
            return Err(RejectedRequest { why, decision: None, route: Some(index) });
        }
        let attempt = AuthAttempt { address: downstream.client, guesses: &gateway.guesses };
        let identified = config.auth.identify(&request.headers, attempt, &*gateway.clock);
        let caller = identified.as_ref().ok();
        context.record.route(&route.settings.name);
        context.record.tenant(caller.and_then(|caller| Some(&caller.tenant.as_ref()?.id)));
        // In a block, so that the future keeps none of it while it waits.
        let (refusal, deciding) = {
            let principal = caller.and_then(|caller| caller.principal.as_deref());
            let reported = || config.trusted_proxies.principal(downstream, &request.headers);
            // A request that is refused for its credential or by its route gets no answer that could cost more than its rules.
            let is_accepted = || caller.is_some_and(|caller| route.settings.authorize(caller).is_ok());
            let estimate = route.settings.estimate.as_ref().filter(|_| is_accepted());
            let estimate = estimate.and_then(|estimate| estimate.of(&request.headers));
            let facts = Facts {
                host: &target.host,
                route: Some(&route.settings.name),
                address: Some(downstream.client),
                tenant: caller.and_then(|caller| caller.tenant.clone()),
                principal: principal.or_else(reported),
                credential: if identified.is_ok() { Credential::Accepted } else { Credential::Refused },
                load_factor: route.load_factor(now),
                estimate,
                holds_permits: true,
                ..Facts::new(&request.method, target.path.matched(), &request.headers)
            };
            let mut owed = config.auth.policy.owed(&facts);
            (owed.refusal.take(), gateway.limits.allow(owed, &context.id))
        };
        let decision = deciding.await;
        if let Some(decision) = &decision {
            context.record.decision(decision);
        }
        if let Some(denied) = decision.as_deref().and_then(RateDecision::denied) {
            let response = gateway.limits.refusal(denied, route.settings.rate_limit_headers, request);
            let why = GatewayRefusal::Limited(Box::new(response));
            return Err(RejectedRequest { why, decision: None, route: Some(index) });
        }
        let accepted = identified.map_err(GatewayRefusal::from);
        let accepted = accepted.and_then(|caller| refusal.map_or(Ok(caller), |why| Err(why.into())));
        match accepted.and_then(|caller| route.settings.authorize(&caller).map(|()| caller)) {
            Ok(caller) => Ok(AdmittedRequest { target, route: index, caller, decision }),
            Err(why) => Err(RejectedRequest { why, decision, route: Some(index) }),
        }
    }

    /// Sends an admitted request to an upstream, and turns its answer into the client's response. `priced` if the answer reports its
    /// cost.
    #[expect(clippy::too_many_arguments, reason = "a struct of them would be kept twice in the future")]
    pub(super) async fn proxy(
        &self,
        config: &ActiveConfig,
        admitted: &mut AdmittedRequest,
        downstream: &Downstream,
        context: &mut RequestContext,
        parts: &mut Parts,
        body: ClientBody,
        priced: Option<&PricedRequest>,
    ) -> Result<Response<ResponseBody>, GatewayRefusal> {
        let AdmittedRequest { target, route: index, caller, decision } = admitted;
        let route = config.route(*index);
        if body.size_hint().lower() > route.settings.max_body {
            return Err(GatewayRefusal::BodyTooLarge);
        }
        let upgrade = UpgradeRequest::from_request(parts, &route.settings.upgrades);
        let holds_key = |name: &HeaderName| config.auth.holds_key(caller, name);
        sanitize::sanitize_request(&mut parts.headers, downstream.trusted, parts.version, holds_key);
        if let Some(upgrade) = &upgrade {
            upgrade.write(&mut parts.headers);
        }
        let cost_source = route.settings.cost_from_response.as_ref();
        if cost_source.is_some_and(CostSource::reads_body) {
            sanitize::request_whole_body(&mut parts.headers);
        }
        let (authority, version) = (target.authority.as_str(), parts.version);
        let forwarding = ForwardingHeaders { caller, downstream, authority, version, id: &context.id };
        let outbound = OutboundRequest::new(parts, forwarding, &route.settings.request_changes);
        let key = route.settings.concurrency.map(|_| CallerKey::of(caller, downstream.client));
        let mut deadline = Deadline::after(route.settings.timeouts.total);
        let sent = priced.map(|priced| &priced.sent);
        let exchange = self.exchange(config, *index, target, key, outbound, body, sent, &mut deadline);
        let answer = match &self.gateway.tracer {
            None => exchange.await,
            // Boxed, so that the futures of requests that are not traced stay small.
            tracer => Box::pin(Tracer::within(tracer.as_ref(), "proxy", SpanKind::Client, exchange)).await,
        };
        let mut answer = answer.map_err(|failed| context.failed(failed))?;
        context.record.upstream(answer.endpoint());
        // The client is answered in its version of HTTP, which may differ from the upstream's.
        let version = mem::replace(answer.response.version_mut(), Version::HTTP_11);
        let in_header = cost_source.and_then(|source| source.in_header(answer.response.headers()));
        sanitize::sanitize_response(answer.response.headers_mut(), version);
        let status = answer.response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // An upstream that switches protocols without having been asked to is broken.
            let upgrade = upgrade.ok_or(GatewayRefusal::BadAnswer)?;
            return self.start_tunnel(route, answer, upgrade, decision.as_deref(), in_header);
        }
        let meter = match (decision.as_deref_mut(), cost_source, &route.answer_costs, priced) {
            (Some(decision), Some(source), Some(costs), Some(priced)) => {
                let head = AnswerHead { source, in_header, status, headers: answer.response.headers() };
                Box::pin(self.gateway.settle_or_meter(costs, decision, head, &priced.detachment)).await
            }
            _ => None,
        };
        Ok(client_response(route, answer, deadline, meter))
    }

    /// The upstream's answer. Not an `async fn`, which would keep its arguments twice in its future.
    #[expect(clippy::too_many_arguments, reason = "a struct of them would be kept twice in the future")]
    fn exchange<'r>(
        &'r self,
        config: &'r ActiveConfig,
        index: usize,
        target: &'r RequestTarget,
        caller: Option<CallerKey>,
        mut outbound: OutboundRequest<'r>,
        body: ClientBody,
        sent: Option<&'r SendProgress>,
        deadline: &'r mut Deadline,
    ) -> impl Future<Output = Result<UpstreamResponse, FailedExchange>> + Send + 'r {
        let route = config.route(index);
        let path = match upstream_path(&target.path, route.rewrite.as_ref()) {
            _ if target.is_whole_server => PathAndQuery::from_static("*"),
            Ok(path) => path,
            Err(why) => return EitherFuture::Left(std::future::ready(Err(why.into()))),
        };
        let (mut upload, progress) = upload(body, route);
        let exchange = ProxyExchange {
            route,
            pools: config.pools(index),
            connector: &self.gateway.connector,
            authority: &target.authority,
            path,
            progress,
            caller,
            sent,
            clock: &*self.gateway.clock,
        };
        EitherFuture::Right(async move {
            let traced = self.gateway.tracer.is_some();
            if traced {
                note_method(&outbound.parts.method);
                note("spile.route", || route.settings.name.to_string());
                write_traceparent(&mut outbound.parts.headers);
            }
            let answer = exchange.run(&mut outbound, &mut upload, deadline).await;
            if traced {
                note_exchange(&answer);
            }
            answer
        })
    }

    /// Connects the two ends of an upgraded connection. The tunnel holds the permits of its request. If the route has a price for
    /// it, the request is settled when the tunnel ends; `in_header` is what the answer reported.
    fn start_tunnel(
        &self,
        route: &RouteState,
        answer: UpstreamResponse,
        upgrade: UpgradeRequest,
        decision: Option<&RateDecision>,
        in_header: Option<Amount>,
    ) -> Result<Response<ResponseBody>, GatewayRefusal> {
        let (head, upstream, in_flight) = answer.into_upgraded();
        let upstream = upstream.ok_or(GatewayRefusal::BadAnswer)?;
        let mut response = head.map(|()| own_body(Bytes::new()));
        upgrade.write(response.headers_mut());
        let (mut closed, max_idle) = (self.tunnels.subscribe(), route.settings.timeouts.idle);
        let permit = decision.map(RateDecision::take_permit);
        let costs = route.answer_costs.clone().zip(route.settings.upgrade_cost);
        let priced = costs.zip(decision.cloned()).map(|priced| (priced, Arc::clone(&self.gateway)));
        tokio::spawn(async move {
            let passed = AtomicU64::new(0);
            tokio::select! {
                () = tunnel(upgrade, upstream, max_idle, &passed) => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
            drop((in_flight, permit));
            if let Some((((costs, price), mut decision), gateway)) = priced {
                let by_size = price.cost_of(passed.load(Ordering::Relaxed));
                gateway.settle_tunnel(&costs, &mut decision, in_header, by_size).await;
            }
        });
        Ok(response)
    }
}

impl RequestContext {
    /// Records which upstream was tried last, for both logs.
    fn failed(&mut self, FailedExchange { refusal, last_attempt }: FailedExchange) -> GatewayRefusal {
        if let Some((endpoint, _)) = &last_attempt {
            self.record.upstream(endpoint);
        }
        self.failure = last_attempt.map(Box::new);
        refusal
    }
}

impl From<GatewayRefusal> for RejectedRequest {
    fn from(why: GatewayRefusal) -> Self {
        Self { why, decision: None, route: None }
    }
}

impl From<AuthError> for GatewayRefusal {
    fn from(why: AuthError) -> Self {
        match why {
            AuthError::Invalid(why) => Self::Unauthenticated(why),
            AuthError::TooManyGuesses => Self::TooManyGuesses,
        }
    }
}

impl From<PolicyRefusal> for GatewayRefusal {
    fn from(why: PolicyRefusal) -> Self {
        match why {
            PolicyRefusal::NoKey { .. } => {
                Self::Unauthenticated("the request carries nothing that it could be rate limited by")
            }
            PolicyRefusal::NoIdentity { .. } => Self::BadRequest(
                "what the request is rate limited by holds a control character or is too long",
            ),
            PolicyRefusal::NoTenant { .. } => Self::Unauthenticated("a tenant's credential is required here"),
            PolicyRefusal::NeverPasses(_) => {
                Self::Forbidden("the request costs more than the caller's plan ever allows")
            }
            PolicyRefusal::Banned { .. } => Self::Forbidden("this request is banned"),
            _ => Self::Misconfigured,
        }
    }
}

/// The path, with everything escaped that is not printable ASCII. A format of the log may escape less.
fn printable(path: &str) -> Cow<'_, str> {
    let is_printable = path.bytes().all(|byte| byte.is_ascii_graphic());
    if is_printable { path.into() } else { path.escape_default().to_string().into() }
}

/// The upstream's answer as a response to the client.
fn client_response(
    route: &RouteState,
    answer: UpstreamResponse,
    deadline: Deadline,
    meter: Option<AnswerMeter>,
) -> Response<ResponseBody> {
    let mut response = answer.into_download(route.settings.timeouts.idle);
    // Changed where it is, because a body is large to move.
    if let Either::Right(download) = response.body_mut() {
        download.end_by(deadline);
        if let Some(meter) = meter {
            download.read_cost(meter);
        }
    }
    response
}

fn own_body(bytes: Bytes) -> ResponseBody {
    Either::Left(Full::new(bytes))
}

fn upload(body: ClientBody, route: &RouteState) -> (Upload, Option<Arc<UploadProgress>>) {
    if body.is_end_stream() {
        return (Upload::none(), None);
    }
    let progress = Arc::new(UploadProgress::default());
    let (max_bytes, max_idle) = (route.settings.max_body, route.settings.timeouts.idle);
    (Upload::streamed(body, max_bytes, max_idle, Arc::clone(&progress)), Some(progress))
}
