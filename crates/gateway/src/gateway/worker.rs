//! One request's way through the gateway: target, route, caller, limits, upstream.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::Either as Whichever;
use http::header::{CONNECTION, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::{Either, Full};
use spile_core::{Micros, Store};
use spile_listener::{ClientBody, Deadline, Origin, is_only_chunked};
use spile_observe::trace::{Tracer, note, span};
use spile_policy::{Credential, Facts, Refusal as PolicyRefusal};
use spile_tower::response::is_grpc;
use tokio::sync::watch;

use super::trace;
use crate::auth::{Caller, Hop, Presenter, Unaccepted};
use crate::forward::body::{Meter, Reply, Upload, discard};
use crate::forward::headers::{Introduction, RequestId, sanitize};
use crate::forward::{Answer, Errand, Exchange, Upgrade, carry};
use crate::gateway::Setup;
use crate::gateway::Shared;
use crate::gateway::{Roads, Way};
use crate::limit::PlaceHolder;
use crate::limit::Ruling;
use crate::refusal::Refusal;
use crate::route::Target;
use crate::route::{Served, upstream_path};
use crate::upstream::header_maps;

/// Serves requests on one runtime, over connections of its own.
pub(crate) struct Worker<S> {
    shared: Arc<Shared<S>>,
    roads: Arc<ArcSwap<Roads>>,
    /// Every upgraded connection holds a receiver, and ends when told.
    tunnels: watch::Sender<bool>,
}

/// What is known of a request from the first.
struct Arrival {
    id: RequestId,
    /// Whether it is a call over gRPC, which wants its refusals in another form.
    grpc: bool,
}

/// A request that has been let in.
struct Admitted {
    target: Target,
    route: usize,
    caller: Caller,
    ruling: Option<Box<Ruling>>,
}

/// A request that has been turned away, with what it was charged first.
struct TurnedAway {
    why: Refusal,
    ruling: Option<Box<Ruling>>,
    /// `None` if it was turned away before a route was found.
    route: Option<usize>,
}

impl<S: Store + 'static> Worker<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>) -> Self {
        Self { roads: shared.live.join(), shared, tunnels: watch::Sender::new(false) }
    }

    /// Closes connections to upstreams that have had nothing to do for long, and ends ejections that are over.
    pub(crate) fn sweep(&self) {
        let (roads, now) = (self.roads.load(), self.shared.clock.now());
        roads.sweep();
        for served in roads.setup.table.routes() {
            served.pool.endpoints().iter().for_each(|endpoint| endpoint.health.refresh(now));
        }
    }

    /// Resolves once no upgraded connection is left.
    pub(crate) async fn tunnels_closed(&self) {
        self.tunnels.closed().await;
    }

    /// Cuts upgraded connections off.
    pub(crate) fn cut_tunnels(&self) {
        self.tunnels.send_replace(true);
    }

    /// The answer to a request.
    pub(crate) fn answer(
        self: Arc<Self>,
        origin: Origin,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Response<Reply>> + Send {
        let (parts, body) = request.into_parts();
        match self.shared.tracer.clone() {
            None => Whichever::Left(self.respond(origin, parts, body)),
            // Boxed, so that those who are not traced need not carry it around.
            Some(tracer) => Whichever::Right(Box::pin(self.traced(tracer, origin, parts, body))),
        }
    }

    async fn traced(
        self: Arc<Self>,
        tracer: Tracer,
        origin: Origin,
        mut parts: Parts,
        body: ClientBody,
    ) -> Response<Reply> {
        let came_with = trace::context_of(&mut parts.headers);
        let answered = async {
            note("http.request.method", || parts.method.to_string());
            let response = self.respond(origin, parts, body).await;
            note("http.response.status_code", || response.status().as_str().to_owned());
            response
        };
        tracer.trace("http request", came_with, answered).await
    }

    /// What is given is used where it is, for all of this is moved once for every request.
    #[expect(clippy::manual_async_fn, reason = "it would keep its arguments twice")]
    fn respond(
        self: Arc<Self>,
        origin: Origin,
        mut parts: Parts,
        body: ClientBody,
    ) -> impl Future<Output = Response<Reply>> + Send {
        async move {
            let started = self.shared.clock.now();
            let roads = self.roads.load_full();
            let hop = roads.setup.trust.hop(origin.peer, origin.secure, &parts.headers);
            let id = RequestId::of(&parts.headers, hop.trusted);
            let arrival = Arrival { id, grpc: is_grpc(&parts.headers) };
            // Only a body of unknown length can have a coding, and most requests are spared the look.
            if !origin.ambiguous && body.size_hint().exact().is_none() && !is_only_chunked(&parts.headers) {
                return self.conclude(&roads.setup, &arrival, None, None, Err(Refusal::OtherCoding));
            }
            let mut admitted = match self.admit(&roads.setup, origin, &hop, &mut parts, started).await {
                Ok(admitted) => admitted,
                Err(TurnedAway { why, ruling, route }) => {
                    let goes_on = !origin.ambiguous && discard(body, &parts);
                    let mut response =
                        self.conclude(&roads.setup, &arrival, route, ruling.as_deref(), Err(why));
                    if !goes_on {
                        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    return response;
                }
            };
            if roads.way(admitted.route).served.route.cost_from_response {
                return Box::pin(self.proxy_to_the_end(roads, admitted, hop, arrival, parts, body)).await;
            }
            let answer = self.proxy(&roads, &mut admitted, &hop, &arrival.id, &mut parts, body).await;
            header_maps::keep(mem::take(&mut parts.headers));
            self.conclude(&roads.setup, &arrival, Some(admitted.route), admitted.ruling.as_deref(), answer)
        }
    }

    /// The same in a task of its own: what the upstream reports is charged even if the client does not wait for it.
    async fn proxy_to_the_end(
        self: &Arc<Self>,
        roads: Arc<Roads>,
        mut admitted: Admitted,
        hop: Hop,
        arrival: Arrival,
        mut parts: Parts,
        body: ClientBody,
    ) -> Response<Reply> {
        let worker = Arc::clone(self);
        // A gateway that stops waits for it as it does for tunnels.
        let held = self.tunnels.subscribe();
        let exchange = async move {
            let _held = held;
            let answer = worker.proxy(&roads, &mut admitted, &hop, &arrival.id, &mut parts, body).await;
            (roads, arrival, admitted, answer)
        };
        match tokio::spawn(span("settled exchange", exchange)).await {
            Ok((roads, arrival, admitted, answer)) => {
                let (route, ruling) = (Some(admitted.route), admitted.ruling.as_deref());
                self.conclude(&roads.setup, &arrival, route, ruling, answer)
            }
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// What the client gets to see.
    fn conclude(
        &self,
        setup: &Setup,
        arrival: &Arrival,
        route: Option<usize>,
        ruling: Option<&Ruling>,
        answer: Result<Response<Reply>, Refusal>,
    ) -> Response<Reply> {
        let route = route.map(|route| &setup.table.routes()[route].route);
        let (own, mut response) = match answer {
            Ok(response) => (false, response),
            Err(refusal) => (true, setup.refuse(refusal, route, arrival.grpc).map(own_words)),
        };
        if let Some(ruling) = ruling {
            let shown = route.is_none_or(|route| route.rate_limit_headers);
            self.shared.limits.write(ruling, shown, response.headers_mut());
        }
        arrival.id.write(response.headers_mut());
        match route.map(|route| &route.response_changes).filter(|changes| !changes.is_empty()) {
            Some(changes) if own => changes.apply_to_own(response.headers_mut()),
            Some(changes) => changes.apply(response.headers_mut()),
            None => {}
        }
        response
    }

    /// Decides whether a request may go on, before anything of its body is read.
    ///
    /// Limits come before a wrong credential is turned away, so that guessing is limited like everything else.
    async fn admit(
        &self,
        setup: &Setup,
        origin: Origin,
        hop: &Hop,
        request: &mut Parts,
        now: Micros,
    ) -> Result<Admitted, TurnedAway> {
        if origin.ambiguous {
            return Err(Refusal::TwoFramings.into());
        }
        if sanitize::goes_in_circles(&request.headers) {
            return Err(Refusal::Circling.into());
        }
        let target = Target::of(request, &self.shared.bounds)?;
        let route = setup.table.find(&target).ok_or(Refusal::NoRoute)?;
        let served = &setup.table.routes()[route];
        let presenter = Presenter { address: hop.client, guesses: &self.shared.guesses };
        let identified = setup.auth.identify(&request.headers, presenter, &*self.shared.clock);
        let caller = identified.as_ref().ok();
        let principal = caller.and_then(|caller| caller.principal.as_deref());
        let facts = Facts::new(&request.method, target.path.matched(), &request.headers)
            .host(&target.host)
            .route(&served.route.name)
            .address(hop.client)
            .tenant(caller.and_then(|caller| caller.tenant.clone()))
            .principal(principal.or_else(|| setup.reported_principal(hop, &request.headers)))
            .credential(if identified.is_ok() { Credential::Accepted } else { Credential::Refused })
            .load_factor(served.factor(now));
        let mut owed = setup.auth.policy.owed(&facts);
        let refusal = owed.refusal.take();
        let ruling = self.shared.limits.allow(owed).await;
        if let Some(ruling) = ruling.as_ref().filter(|ruling| !ruling.allowed()) {
            let answer = self.shared.limits.refusal(ruling, served.route.rate_limit_headers, request);
            let why = Refusal::Limited(Box::new(answer));
            return Err(TurnedAway { why, ruling: None, route: Some(route) });
        }
        let accepted = identified.map_err(Refusal::from);
        let accepted = accepted.and_then(|caller| refusal.map_or(Ok(caller), |why| Err(why.into())));
        match accepted.and_then(|caller| served.route.let_in(&caller).map(|()| caller)) {
            Ok(caller) => Ok(Admitted { target, route, caller, ruling }),
            Err(why) => Err(TurnedAway { why, ruling, route: Some(route) }),
        }
    }

    /// Takes an admitted request to its upstream.
    async fn proxy(
        &self,
        roads: &Roads,
        admitted: &mut Admitted,
        hop: &Hop,
        id: &RequestId,
        parts: &mut Parts,
        body: ClientBody,
    ) -> Result<Response<Reply>, Refusal> {
        let Admitted { target, route, caller, ruling } = admitted;
        let way = roads.way(*route);
        let served = way.served;
        if body.size_hint().lower() > served.route.max_body {
            return Err(Refusal::BodyTooLarge);
        }
        let upgrade = Upgrade::wanted(parts, &served.route.upgrades);
        let holds_key = |name: &HeaderName| roads.setup.auth.holds_key(caller, name);
        sanitize::clean(&mut parts.headers, hop.trusted, parts.version, holds_key);
        if let Some(upgrade) = &upgrade {
            upgrade.write(&mut parts.headers);
        }
        let (authority, version) = (target.authority.as_str(), parts.version);
        let introduction = Introduction { caller, hop, authority, version, id };
        let errand = Errand::new(parts, introduction, &served.route.request_changes);
        let holder = served.route.concurrency.map(|_| PlaceHolder::of(caller, hop.client));
        let mut deadline = Deadline::after(served.route.timeouts.total);
        let asking = self.ask_upstream(way, target, holder, errand, body, &mut deadline);
        let mut answer = match &self.shared.tracer {
            None => asking.await?,
            // Boxed, so that requests without a trace need not carry it around.
            tracer => Box::pin(Tracer::within(tracer.as_ref(), "proxy", asking)).await?,
        };
        // The client is answered in its own version, whatever the upstream speaks.
        let version = std::mem::replace(answer.response.version_mut(), Version::HTTP_11);
        let reported = sanitize::for_client(answer.response.headers_mut(), version);
        if let (Some(ruling), Some(tokens), true) = (ruling, reported, served.route.cost_from_response) {
            Box::pin(self.shared.limits.settle(ruling, tokens)).await;
        }
        self.finish(served, answer, upgrade, deadline)
    }

    /// The upstream's answer to a request whose header is ready to go. As with [`respond`](Self::respond), nothing is
    /// kept twice.
    fn ask_upstream<'r>(
        &'r self,
        way: Way<'r>,
        target: &'r Target,
        caller: Option<PlaceHolder>,
        mut errand: Errand<'r>,
        body: ClientBody,
        deadline: &'r mut Deadline,
    ) -> impl Future<Output = Result<Answer, Refusal>> + Send + 'r {
        let Way { served, lines } = way;
        let path = match upstream_path(&target.path, served.rewrite.as_ref()) {
            _ if target.is_whole_server => PathAndQuery::from_static("*"),
            Ok(path) => path,
            Err(why) => return Whichever::Left(std::future::ready(Err(why))),
        };
        let (mut upload, meter) = upload(body, served);
        let exchange = Exchange {
            served,
            lines,
            dialer: &self.shared.dialer,
            authority: &target.authority,
            path,
            meter,
            caller,
            clock: &*self.shared.clock,
        };
        Whichever::Right(async move {
            if self.shared.tracer.is_some() {
                note("spile.route", || served.route.name.to_string());
                trace::pass_on(&mut errand.parts.headers);
            }
            let answer = exchange.run(&mut errand, &mut upload, deadline).await;
            if self.shared.tracer.is_some() {
                note("spile.upstream_answer", || match &answer {
                    Ok(answer) => answer.response.status().to_string(),
                    Err(why) => format!("{why:?}"),
                });
            }
            answer
        })
    }

    /// Makes of the upstream's answer the client's.
    fn finish(
        &self,
        served: &Served,
        answer: Answer,
        upgrade: Option<Upgrade>,
        deadline: Deadline,
    ) -> Result<Response<Reply>, Refusal> {
        if answer.response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let response = answer.into_download(served.route.timeouts.idle);
            return Ok(response.map(|download| Either::Right(download.until(deadline))));
        }
        // An upstream that switches without having been asked to is not one to go on talking to.
        let upgrade = upgrade.ok_or(Refusal::BadAnswer)?;
        self.tunnel(answer, upgrade, served.route.timeouts.idle)
    }

    /// Lets the two ends of an upgraded connection talk to each other.
    fn tunnel(
        &self,
        answer: Answer,
        upgrade: Upgrade,
        max_idle: Duration,
    ) -> Result<Response<Reply>, Refusal> {
        let (head, upstream, place) = answer.into_upgraded();
        let upstream = upstream.ok_or(Refusal::BadAnswer)?;
        let mut response = head.map(|()| own_words(Bytes::new()));
        upgrade.write(response.headers_mut());
        let mut cut = self.tunnels.subscribe();
        let client = upgrade.into_client();
        tokio::spawn(async move {
            tokio::select! {
                () = carry(client, upstream, max_idle) => {}
                _ = cut.wait_for(|cut| *cut) => {}
            }
            drop(place);
        });
        Ok(response)
    }
}

impl From<Refusal> for TurnedAway {
    fn from(why: Refusal) -> Self {
        Self { why, ruling: None, route: None }
    }
}

impl From<Unaccepted> for Refusal {
    fn from(why: Unaccepted) -> Self {
        match why {
            Unaccepted::Wrong(why) => Self::Unauthenticated(why),
            Unaccepted::NotLookedAt => Self::Guessing,
        }
    }
}

impl From<PolicyRefusal> for Refusal {
    fn from(why: PolicyRefusal) -> Self {
        match why {
            PolicyRefusal::NoKey { .. } => {
                Self::Unauthenticated("the request carries nothing that it could be rate limited by")
            }
            PolicyRefusal::NoIdentity { .. } => {
                Self::Unclear("what the request is rate limited by holds a control character or is too long")
            }
            PolicyRefusal::NoTenant { .. } => Self::Unauthenticated("a tenant's credential is required here"),
            PolicyRefusal::NeverPasses(_) => {
                Self::Forbidden("the request costs more than the caller's plan ever allows")
            }
            PolicyRefusal::Banned { .. } => Self::Forbidden("nothing passes here"),
            _ => Self::Misconfigured,
        }
    }
}

fn own_words(words: Bytes) -> Reply {
    Either::Left(Full::new(words))
}

fn upload(body: ClientBody, served: &Served) -> (Upload, Option<Arc<Meter>>) {
    if body.is_end_stream() {
        return (Upload::none(), None);
    }
    let meter = Arc::new(Meter::default());
    let (max_bytes, max_idle) = (served.route.max_body, served.route.timeouts.idle);
    (Upload::streamed(body, max_bytes, max_idle, Arc::clone(&meter)), Some(meter))
}
