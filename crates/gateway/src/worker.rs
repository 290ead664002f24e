//! One request's way through the gateway: target, route, caller, limits, upstream.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use spile_core::Store;
use spile_tower::response::is_grpc;

use crate::auth::Caller;
use crate::body::{Download, Meter, Reply, Upload};
use crate::connection::Origin;
use crate::forward::{Exchange, Hop, RequestId, fields};
use crate::limit::Ruling;
use crate::refusal::Refusal;
use crate::route::Served;
use crate::shared::Shared;
use crate::target::Target;
use crate::upstream::Lines;

/// Serves requests on one runtime, over connections of its own.
pub(crate) struct Worker<S> {
    shared: Arc<Shared<S>>,
    /// For each route, for each of its endpoints.
    lines: Box<[Box<[Arc<Lines>]>]>,
}

/// A request that has been let in.
struct Admitted<'w> {
    target: Target,
    route: usize,
    caller: Caller,
    ruling: Option<Ruling<'w>>,
}

/// A request that has been turned away, with what it was charged first.
struct TurnedAway<'w> {
    why: Refusal,
    ruling: Option<Ruling<'w>>,
}

impl<S: Store> Worker<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>) -> Self {
        let of_route = |served: &Served| served.pool.endpoints().iter().map(|_| Arc::default()).collect();
        let lines = shared.table.routes().iter().map(of_route).collect();
        Self { shared, lines }
    }

    /// Closes connections to upstreams that have had nothing to do for long.
    pub(crate) fn sweep(&self) {
        self.lines.iter().flatten().for_each(|lines| lines.sweep());
    }

    pub(crate) async fn answer(&self, origin: Origin, request: Request<Incoming>) -> Response<Reply> {
        let (mut parts, body) = request.into_parts();
        let hop = self.shared.trust.hop(origin.peer, origin.secure, &mut parts);
        let id = RequestId::of(&parts.headers, hop.trusted);
        let grpc = is_grpc(&parts.headers);
        let (ruling, answer) = match self.admit(&mut parts).await {
            Ok(admitted) => self.proxy(admitted, &hop, &id, parts, body).await,
            Err(turned_away) => (turned_away.ruling, Err(turned_away.why)),
        };
        let mut response = match answer {
            Ok(response) => response.map(Either::Right),
            Err(refusal) => refusal.into_response(grpc).map(own_words),
        };
        if let Some(ruling) = &ruling {
            self.shared.limits.write(ruling, response.headers_mut());
        }
        id.write(response.headers_mut());
        response
    }

    /// Decides whether a request may go on, before anything of its body is read.
    ///
    /// Limits come before a wrong credential is turned away, so that guessing is limited like everything else.
    async fn admit(&self, request: &mut Parts) -> Result<Admitted<'_>, TurnedAway<'_>> {
        let target = Target::of(request, self.shared.bounds.uri_bytes)?;
        let route = self.shared.table.find(&target).ok_or(Refusal::NoRoute)?;
        let served = &self.shared.table.routes()[route];
        let identified = self.shared.auth.identify(&mut request.headers);
        if let Ok(caller) = &identified {
            caller.introduce(&mut request.extensions);
        }
        request.extensions.insert(served.label.clone());
        let decided = self.shared.limits.decide(request, target.path.matched(), &served.route.limits).await;
        let ruling = decided.map_err(|_| Refusal::Misconfigured)?;
        if let Some(ruling) = ruling.as_ref().filter(|ruling| !ruling.allowed()) {
            return Err(Refusal::Limited(Box::new(self.shared.limits.refusal(ruling, request))).into());
        }
        let accepted = identified.map_err(|why| Refusal::Unauthenticated(why.0));
        match accepted.and_then(|caller| served.route.let_in(&caller).map(|()| caller)) {
            Ok(caller) => Ok(Admitted { target, route, caller, ruling }),
            Err(why) => Err(TurnedAway { why, ruling }),
        }
    }

    /// Takes an admitted request to its upstream.
    async fn proxy<'w>(
        &'w self,
        admitted: Admitted<'w>,
        hop: &Hop,
        id: &RequestId,
        mut parts: Parts,
        body: Incoming,
    ) -> (Option<Ruling<'w>>, Result<Response<Download>, Refusal>) {
        let Admitted { target, route, caller, ruling } = admitted;
        let served = &self.shared.table.routes()[route];
        if announced_bytes(&parts) > served.route.max_body {
            return (ruling, Err(Refusal::BodyTooLarge));
        }
        fields::for_upstream(&mut parts.headers, hop, &caller, &target.authority, parts.version, id);
        let (upload, meter) = upload(body, served);
        let exchange = Exchange {
            served,
            lines: &self.lines[route],
            dialer: &self.shared.dialer,
            authority: &target.authority,
            path: upstream_path(&target),
            meter,
        };
        let mut request = Request::new(upload);
        *request.method_mut() = parts.method;
        *request.headers_mut() = parts.headers;
        let mut answer = exchange.run(request).await;
        if let Ok(response) = &mut answer {
            let version = response.version();
            fields::for_client(response.headers_mut(), version);
        }
        (ruling, answer)
    }
}

impl From<Refusal> for TurnedAway<'_> {
    fn from(why: Refusal) -> Self {
        Self { why, ruling: None }
    }
}

fn own_words(words: Bytes) -> Reply {
    Either::Left(Full::new(words))
}

/// The bytes of body that the request says it has; none where it does not say.
fn announced_bytes(request: &Parts) -> u64 {
    let length = request.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn upload(body: Incoming, served: &Served) -> (Upload, Option<Arc<Meter>>) {
    if body.is_end_stream() {
        return (Upload::none(), None);
    }
    let meter = Arc::new(Meter::default());
    let (max_bytes, max_idle) = (served.route.max_body, served.route.timeouts.idle);
    (Upload::streamed(body, max_bytes, max_idle, Arc::clone(&meter)), Some(meter))
}

fn upstream_path(target: &Target) -> PathAndQuery {
    if let Some(untouched) = target.path.untouched() {
        return untouched.clone();
    }
    let mut text = target.path.forwarded().to_owned();
    if let Some(query) = target.path.query() {
        text.push('?');
        text.push_str(query);
    }
    PathAndQuery::try_from(text).unwrap_or_else(|_| PathAndQuery::from_static("/"))
}
