//! A client that speaks plain HTTP/1.1 over one connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A response with its whole body.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header of text"))
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }
}

/// One connection.
pub(crate) struct Client {
    sender: http1::SendRequest<Full<Bytes>>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a listening gateway");
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(async move { drop(connection.with_upgrades().await) });
        Self { sender }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Answer {
        self.sender.ready().await.expect("an open connection");
        let response = self.sender.send_request(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.ask("GET", path, fields, "").await
    }

    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", "gateway.test");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        self.send(request.body(body).expect("a request")).await
    }
}
