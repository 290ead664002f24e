//! HTTP on a connection: whichever version its client speaks.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::body::ClientBody;
use crate::bounds::Bounds;
use crate::client_stream::ClientStream;
use crate::drain::Watcher;
use crate::http2::{self, Paced, Received};
use crate::listener::{Connection, Origin, Protocol, Transport};
use crate::metrics::RequestMetrics;
use crate::streams::Streams;

/// What answers the requests of one listener.
pub trait Answer: Clone + Send + Sync + Unpin + 'static {
    /// Whether only HTTP/2 is spoken.
    const HTTP2_ONLY: bool = false;

    /// What answers are made of.
    type Body: Paced<Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send> + Send + 'static;

    /// The answer to a request.
    fn answer(
        self,
        origin: Origin,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;

    /// Resolves once what outlives its connection has ended too.
    fn finished(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Requests and answers, over HTTP/1.1 and HTTP/2.
#[derive(Clone)]
pub struct Http<A> {
    answer: A,
    metrics: RequestMetrics,
    bounds: Arc<Bounds>,
}

impl<A: Answer> Http<A> {
    /// Answers by `answer`, within these bounds.
    pub fn new(answer: A, metrics: RequestMetrics, bounds: &Bounds) -> Self {
        Self { answer, metrics, bounds: Arc::new(bounds.clone()) }
    }

    fn answer(
        &self,
        origin: Origin,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Response<A::Body>> + Send + use<A> {
        self.metrics.counted(self.answer.clone().answer(origin, request))
    }

    async fn serve_http1(self, stream: ClientStream<impl Transport>, origin: Origin, watcher: Watcher) {
        let bounds = Arc::clone(&self.bounds);
        let (ambiguity, asked) = (stream.ambiguity(), AtomicU64::new(0));
        let service = service_fn(move |request: Request<Incoming>| {
            let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
            let origin = Origin { ambiguous: ambiguity.reaches(number), ..origin };
            self.answer(origin, request.map(ClientBody::Http1)).map(Ok::<_, Infallible>)
        });
        let connection = http1(&bounds).serve_connection(TokioIo::new(stream), service).with_upgrades();
        // A connection that breaks is its client's affair: there is no one left to tell.
        let _ended = watcher.watch(connection, UpgradeableConnection::graceful_shutdown).await;
    }
}

impl<A: Answer> Protocol for Http<A> {
    async fn serve<I: Transport>(self, connection: Connection<I>) {
        let Connection { stream, origin, mut watcher, place } = connection;
        let streams = Streams::default();
        let mut stream = ClientStream::new(stream, &self.bounds).resting(streams.clone()).holding(place);
        // A client that has said nothing yet has nothing to wait for.
        match watcher.unless_draining(stream.speaks_http2()).await {
            Some(Ok(false)) if !A::HTTP2_ONLY => self.serve_http1(stream, origin, watcher).await,
            // Boxed, so that connections of HTTP/1 need not carry it around.
            Some(Ok(true)) => {
                let bounds = Arc::clone(&self.bounds);
                let answer =
                    move |request: Request<Received>| self.answer(origin, request.map(ClientBody::Http2));
                Box::pin(http2::serve(stream, &bounds, streams, watcher, answer)).await;
            }
            Some(Ok(false) | Err(_)) | None => {}
        }
    }

    fn finished(&self) -> impl Future<Output = ()> + Send {
        self.answer.finished()
    }
}

fn http1(bounds: &Bounds) -> Builder {
    let mut http = Builder::new();
    // Without a timer hyper's header timeout does nothing.
    http.timer(TokioTimer::new())
        .header_read_timeout(bounds.header_timeout)
        .max_buf_size(bounds.header_bytes)
        .max_headers(bounds.header_fields);
    http
}
