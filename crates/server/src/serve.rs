//! Accepts connections and answers their requests until told to stop, then lets what is under way finish.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use spile_gateway::ClientStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::config::Bounds;
use crate::metrics::HttpMetrics;

/// How long a caller may leave its answer unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of header that are read, and of whatever is pipelined behind it.
const MAX_BUFFER: usize = 64 * 1024;
/// Header fields that are read.
const MAX_HEADERS: usize = 100;
/// Requests that one HTTP/2 connection may have under way.
const MAX_STREAMS: u32 = 200;
/// How long to leave the socket alone after a failed accept, which mostly means that descriptors ran out.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What answers the requests of one listener.
pub(crate) trait Answer: Clone + Send + Sync + 'static {
    /// Whether nothing but HTTP/2 is spoken.
    const HTTP2_ONLY: bool = false;

    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;

    fn answer(
        &self,
        peer: SocketAddr,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Serves one listener until `stop` says so.
pub(crate) async fn serve(
    listener: TcpListener,
    answer: impl Answer,
    metrics: HttpMetrics,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
) {
    let connections = Connections::new(answer, metrics, bounds);
    loop {
        tokio::select! {
            biased;
            () = told_to(&mut stop) => break,
            accepted = accept(&listener, &connections.room) => match accepted {
                Ok((stream, peer, permit)) => connections.open(stream, peer, permit),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    connections.drain().await;
}

/// Resolves once the other end says stop, or is gone.
pub(crate) async fn told_to(stop: &mut watch::Receiver<bool>) {
    let _told_or_gone = stop.wait_for(|stop| *stop).await;
}

/// The next connection, once there is room for it.
pub(crate) async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    // Answers are small and whole: waiting to fill a segment would only delay them.
    stream.set_nodelay(true)?;
    Ok((stream, peer, permit))
}

struct Connections<A> {
    answer: A,
    metrics: Arc<HttpMetrics>,
    bounds: Bounds,
    http: Builder<TokioExecutor>,
    room: Arc<Semaphore>,
    graceful: GracefulShutdown,
}

impl<A: Answer> Connections<A> {
    fn new(answer: A, metrics: HttpMetrics, bounds: Bounds) -> Self {
        let (metrics, http) = (Arc::new(metrics), protocol(bounds.header_timeout, A::HTTP2_ONLY));
        let room = Arc::new(Semaphore::new(bounds.max_connections));
        Self { answer, metrics, bounds, http, room, graceful: GracefulShutdown::new() }
    }

    fn open(&self, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        let (answer, metrics) = (self.answer.clone(), Arc::clone(&self.metrics));
        let service = service_fn(move |request| {
            let (answer, metrics) = (answer.clone(), Arc::clone(&metrics));
            async move {
                let started = metrics.started();
                let came_with = metrics.context_of(&request);
                let response = metrics.traced(came_with, answer.answer(peer, request)).await;
                metrics.answered(started, response.status());
                Ok::<_, Infallible>(response)
            }
        });
        // hyper's header timeout starts once the version is known; whoever says nothing is bounded here.
        let stream = TokioIo::new(ClientStream::new(stream, self.bounds.header_timeout, WRITE_TIMEOUT));
        let connection = self.http.serve_connection(stream, service).into_owned();
        let connection = self.graceful.watch(connection);
        tokio::spawn(async move {
            // A connection that breaks is its caller's affair: there is nobody left to tell.
            let _ended = connection.await;
            drop(permit);
        });
    }

    async fn drain(self) {
        // Whoever has not finished by then is cut off.
        let _in_time = tokio::time::timeout(self.bounds.drain_timeout, self.graceful.shutdown()).await;
    }
}

fn protocol(header_timeout: Duration, http2_only: bool) -> Builder<TokioExecutor> {
    let http = Builder::new(TokioExecutor::new());
    let mut http = if http2_only { http.http2_only() } else { http };
    // Without a timer hyper's header timeout does nothing.
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        // Head and body of a small answer are copied together: cheaper than handing the kernel two pieces.
        .writev(false)
        .max_buf_size(MAX_BUFFER)
        .max_headers(MAX_HEADERS);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(header_timeout);
    http
}
