//! An upstream that records the requests it gets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use spile_gateway::Upstream;
use tokio::net::{TcpListener, TcpStream, UnixListener};

/// A request as the upstream saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header of text"))
    }
}

/// An HTTP/1.1 and HTTP/2 server that responds with the result of a closure.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Backend {
    pub(crate) async fn start(
        answer: impl Fn(&Seen) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        Self::start_async(move |seen| std::future::ready(answer(&seen))).await
    }

    /// The same with an asynchronous closure.
    pub(crate) async fn start_async<F>(answer: impl Fn(Seen) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Full<Bytes>>> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (answer, log) = (Arc::new(answer), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                let service = service_fn(move |request| {
                    let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                    async move {
                        let seen = read(request).await;
                        log.lock().push(seen.clone());
                        Ok::<_, Infallible>(answer(seen).await)
                    }
                });
                let http = auto::Builder::new(TokioExecutor::new());
                tokio::spawn(async move { drop(http.serve_connection(TokioIo::new(stream), service).await) });
            }
        });
        Self { address, seen }
    }

    /// Responds to everything with 200 and a short text.
    pub(crate) async fn friendly() -> Self {
        Self::start(|_| text("hello")).await
    }

    /// Listens on this Unix socket too.
    pub(crate) fn listen_on(&self, path: &Path) {
        let (listener, address) = (UnixListener::bind(path).expect("a free path"), self.address);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut backend = TcpStream::connect(address).await.expect("a running backend");
                    drop(tokio::io::copy_bidirectional(&mut stream, &mut backend).await);
                });
            }
        });
    }

    pub(crate) fn upstream(&self) -> Upstream {
        format!("http://{}", self.address).parse().expect("an upstream")
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen.lock().last().cloned().expect("a request that reached the upstream")
    }
}

pub(crate) fn text(words: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::new(Full::new(words.into()))
}

async fn read(request: Request<Incoming>) -> Seen {
    let (parts, body) = request.into_parts();
    let body = body.collect().await;
    let (body, trailers) = match body {
        Ok(whole) => {
            let trailers = whole.trailers().cloned();
            (whole.to_bytes(), trailers)
        }
        Err(_) => (Bytes::from_static(b"(broken off)"), None),
    };
    Seen { method: parts.method, target: parts.uri.to_string(), headers: parts.headers, body, trailers }
}
