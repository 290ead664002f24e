//! Serves HTTP/1.1 or HTTP/2 on a connection.

mod body;
mod client_stream;
mod metrics;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

pub use self::body::{ClientBody, ClientBodyError, UnpacedBody};
pub(crate) use self::client_stream::ClientStream;
pub use self::metrics::RequestMetrics;
use crate::http2::{self, PacedBody, ReceiveBody, StreamTracker};
use crate::listener::{
    AcceptedConnection, Bounds, ClientIo, ConnectionPlace, DrainWatcher, ListenerProtocol, RequestOrigin,
};
use crate::timer::HeadTimer;

/// Answers the requests of one listener.
pub trait HttpHandler: Clone + Send + Sync + Unpin + 'static {
    /// Whether only HTTP/2 is accepted.
    const HTTP2_ONLY: bool = false;

    /// The body of responses.
    type Body: PacedBody<Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send> + Send + 'static;

    /// The handler of the requests of one connection. One whose work may go on after its client has gone keeps a
    /// [place](ConnectionPlace::keep) for it.
    #[must_use]
    fn for_connection(self, _place: &ConnectionPlace) -> Self {
        self
    }

    /// Answers a request.
    fn handle(
        self,
        origin: RequestOrigin,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;

    /// Resolves when everything that outlives its connection, such as a tunnel, has ended.
    fn finished(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The protocol of listeners for HTTP/1.1 and HTTP/2.
#[derive(Clone)]
pub struct Http<A> {
    handler: A,
    metrics: RequestMetrics,
    bounds: Arc<Bounds>,
}

impl<A: HttpHandler> Http<A> {
    /// Serves `handler` within these bounds.
    pub fn new(handler: A, metrics: RequestMetrics, bounds: &Bounds) -> Self {
        Self { handler, metrics, bounds: Arc::new(bounds.clone()) }
    }

    fn handle(
        &self,
        origin: RequestOrigin,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Response<A::Body>> + Send + use<A> {
        self.metrics.counted(self.handler.clone().handle(origin, request))
    }

    async fn serve_http1(
        self,
        stream: ClientStream<impl ClientIo>,
        origin: RequestOrigin,
        watcher: DrainWatcher,
    ) {
        let bounds = Arc::clone(&self.bounds);
        let (paused, hang_up) = (stream.paused_reads(), stream.hang_up());
        let (ambiguity, asked) = (stream.ambiguity(), AtomicU64::new(0));
        let service = service_fn(move |request: Request<Incoming>| {
            let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
            let origin = RequestOrigin { ambiguous: ambiguity.reaches(number), ..origin };
            self.handle(origin, request.map(ClientBody::Http1)).map(Ok::<_, Infallible>)
        });
        let connection = http1(&bounds).serve_connection(TokioIo::new(stream), service).with_upgrades();
        // An error here means that the connection broke, so that there is no client to report it to.
        let connection = watcher.watch(connection, UpgradeableConnection::graceful_shutdown);
        paused.until_hang_up(&hang_up, connection).await;
    }
}

impl<A: HttpHandler> ListenerProtocol for Http<A> {
    async fn serve<I: ClientIo>(mut self, connection: AcceptedConnection<I>) {
        let AcceptedConnection { stream, origin, mut watcher, permit } = connection;
        self.handler = self.handler.for_connection(permit.place());
        let streams = StreamTracker::default();
        let mut stream =
            ClientStream::new(stream, &self.bounds).with_idle_check(streams.clone()).with_permit(permit);
        // A client that has sent nothing yet can be disconnected at once when the listener drains.
        match watcher.unless_draining(stream.speaks_http2()).await {
            Some(Ok(false)) if !A::HTTP2_ONLY => self.serve_http1(stream, origin, watcher).await,
            // Boxed, so that the future of an HTTP/1 connection stays small.
            Some(Ok(true)) => {
                let bounds = Arc::clone(&self.bounds);
                let answer =
                    move |request: Request<ReceiveBody>| self.handle(origin, request.map(ClientBody::Http2));
                Box::pin(http2::serve(stream, &bounds, streams, watcher, answer)).await;
            }
            Some(Ok(false) | Err(_)) | None => {}
        }
    }

    fn finished(&self) -> impl Future<Output = ()> + Send {
        self.handler.finished()
    }
}

fn http1(bounds: &Bounds) -> Builder {
    let mut http = Builder::new();
    // Without a timer hyper's header timeout does nothing.
    http.timer(HeadTimer::default())
        .header_read_timeout(bounds.header_timeout)
        .max_buf_size(bounds.header_bytes)
        .max_headers(bounds.header_fields);
    http
}
