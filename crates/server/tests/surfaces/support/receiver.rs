//! Somebody else's server, which takes what it is sent.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// What was sent, in order.
pub(crate) type Deliveries = mpsc::UnboundedReceiver<(http::HeaderMap, Bytes)>;

/// Hears one request after another, and thanks for each.
pub(crate) async fn receiver(path: &str) -> (String, Deliveries) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let url = format!("http://{}{path}", listener.local_addr().expect("it is bound"));
    let (tell, hears) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tell = tell.clone();
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let tell = tell.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let _listened = tell.send((parts.headers, body.collect().await?.to_bytes()));
                    Ok::<_, hyper::Error>(http::Response::new(Full::<Bytes>::default()))
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (url, hears)
}
