//! One worker: serves requests on one runtime, over its upstream connections.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::Either;
use http::request::Parts;
use http::{Request, Response};
use spile_core::Store;
use spile_listener::{ClientBody, ConnectionPlace, HttpHandler, RequestOrigin};
use spile_observe::trace::{Tracer, note_request, note_response};
use tokio::sync::watch;

use super::trace::parent_context;
use super::{ActiveConfig, GatewayState};
use crate::forward::body::ResponseBody;

/// Serves requests on one runtime, for as long as a call of [`Gateway::serve`](crate::Gateway::serve) lasts.
pub(crate) struct Worker<S> {
    pub(super) gateway: Arc<GatewayState<S>>,
    pub(super) config: Arc<ArcSwap<ActiveConfig>>,
    /// Each tunnel holds a receiver, and ends when it receives `true`.
    pub(super) tunnels: watch::Sender<bool>,
}

/// The worker as the listener calls it, for one connection.
pub(crate) struct WorkerService<S> {
    pub(super) worker: Arc<Worker<S>>,
    /// `None` until there is a connection.
    pub(super) place: Option<ConnectionPlace>,
}

impl<S: Store + 'static> Worker<S> {
    pub(crate) fn new(gateway: Arc<GatewayState<S>>) -> Self {
        Self { config: gateway.add_worker(), gateway, tunnels: watch::Sender::new(false) }
    }

    /// Closes connections to upstreams that have been idle for too long, and ends ejections whose time is over.
    pub(crate) fn sweep(&self) {
        let (config, now) = (self.config.load(), self.gateway.clock.now());
        config.sweep_pools();
        self.gateway.refusal_log.tell_suppressed(now);
        for route in config.table.routes() {
            route.balancer.endpoints().iter().for_each(|endpoint| endpoint.health.refresh(now));
        }
    }

    /// Closes upgraded connections.
    pub(crate) fn close_tunnels(&self) {
        self.tunnels.send_replace(true);
    }

    async fn respond_traced(
        self: Arc<Self>,
        tracer: Tracer,
        origin: RequestOrigin,
        place: Option<ConnectionPlace>,
        mut parts: Parts,
        body: ClientBody,
    ) -> Response<ResponseBody> {
        let parent = parent_context(&mut parts.headers);
        let responded = async {
            note_request(&parts, origin.secure);
            let response = self.respond(origin, place, parts, body).await;
            note_response(response.status(), response.headers());
            response
        };
        tracer.trace("http request", parent, responded).await
    }
}

impl<S> Clone for WorkerService<S> {
    fn clone(&self) -> Self {
        Self { worker: Arc::clone(&self.worker), place: self.place.clone() }
    }
}

impl<S: Store + 'static> HttpHandler for WorkerService<S> {
    type Body = ResponseBody;

    fn for_connection(self, place: &ConnectionPlace) -> Self {
        Self { place: Some(place.clone()), ..self }
    }

    fn handle(
        self,
        origin: RequestOrigin,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Response<ResponseBody>> + Send + 'static {
        let ((parts, body), Self { worker, place }) = (request.into_parts(), self);
        match worker.gateway.tracer.clone() {
            None => Either::Left(worker.respond(origin, place, parts, body)),
            // Boxed, so that the futures of requests that are not traced stay small.
            Some(tracer) => {
                Either::Right(Box::pin(worker.respond_traced(tracer, origin, place, parts, body)))
            }
        }
    }

    /// Resolves once no upgraded connection is left.
    async fn finished(&self) {
        self.worker.tunnels.closed().await;
    }
}
