//! A service with a gateway, and an upstream that tells what it was asked.

use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use spile_core::FakeClock;
use spile_server::{Config, Listeners, Server};
use tokio::net::TcpListener;

/// What lets the admin API be used.
pub(crate) const TOKEN: &str = "a token that nobody would guess";

/// A running service.
pub(crate) struct Spile {
    pub(crate) gateway: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) clock: FakeClock,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header of text"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("JSON: {}", self.body))
    }
}

impl Spile {
    /// Runs with this file, and with listeners of the kernel's choice before it.
    pub(crate) async fn start(file: &str) -> Self {
        let config = Config::parse(Path::new("spile.toml"), listening(file), []);
        Self::run(&config.unwrap_or_else(|why| panic!("{why}"))).await
    }

    /// Runs with this file, and with a token for the admin API.
    pub(crate) async fn start_with_token(file: &str) -> Self {
        let variables = [("SPILE_ADMIN_TOKEN".to_owned(), TOKEN.to_owned())];
        let config = Config::parse(Path::new("spile.toml"), listening(file), variables);
        Self::run(&config.unwrap_or_else(|why| panic!("{why}"))).await
    }

    /// Runs with the file at this path, which can be changed later.
    pub(crate) async fn load(path: &Path) -> Self {
        let variables = [("SPILE_ADMIN_TOKEN".to_owned(), TOKEN.to_owned())];
        Self::run(&Config::load(path, variables).unwrap_or_else(|why| panic!("{why}"))).await
    }

    async fn run(config: &Config) -> Self {
        let listeners = Listeners::bind(&config.listen).await.expect("port 0 is always free");
        let gateway = listeners.gateway.as_ref().expect("a gateway").local_addr().expect("it is bound");
        let admin = listeners.admin.local_addr().expect("it is bound");
        let clock = FakeClock::default();
        let server = Server::on_clock(config, clock.clone()).expect("the configuration works");
        tokio::spawn(server.run(listeners, std::future::pending()));
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { gateway, admin, clock, client }
    }

    pub(crate) async fn get(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.ask(self.gateway, Method::GET, path, fields).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.ask(self.gateway, method, path, fields).await
    }

    pub(crate) async fn metrics(&self) -> String {
        self.ask(self.admin, Method::GET, "/metrics", &[]).await.body
    }

    /// Reads from the admin API.
    pub(crate) async fn admin(&self, path: &str) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        self.ask(self.admin, Method::GET, path, &[("authorization", &bearer)]).await
    }

    /// Reads the file once more.
    pub(crate) async fn reload(&self) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        self.ask(self.admin, Method::POST, "/admin/v1/config/reload", &[("authorization", &bearer)]).await
    }

    async fn ask(&self, to: SocketAddr, method: Method, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("http://{to}{path}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let answer = self.client.request(request.body(Full::default()).expect("a request")).await;
        let (parts, body) = answer.expect("an answer").into_parts();
        let body = body.collect().await.expect("a whole answer").to_bytes();
        let body = String::from_utf8(body.into()).expect("a body of text");
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }
}

/// The file with listeners of the kernel's choice before it.
pub(crate) fn listening(file: &str) -> String {
    let listen = ["http", "admin", "gateway"].map(|name| format!("{name} = \"127.0.0.1:0\"")).join("\n");
    format!("[listen]\n{listen}\n{file}")
}

/// An upstream that answers with what it was asked and who it is.
pub(crate) async fn echo(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let address = listener.local_addr().expect("it is bound");
    let tell = move |request: axum::extract::Request| async move {
        let headers: serde_json::Map<String, Value> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().expect("text").into()))
            .collect();
        let cost = request.headers().get("x-cost").cloned();
        let number = cost.as_ref().and_then(|cost| cost.to_str().ok()?.parse::<u64>().ok());
        let told =
            json!({"upstream": name, "path": request.uri().path(), "headers": headers, "cost": number});
        let mut answer = axum::response::Response::new(axum::body::Body::from(told.to_string()));
        answer.headers_mut().insert("server", http::HeaderValue::from_static("echo"));
        if let Some(cost) = cost {
            answer.headers_mut().insert("x-ratelimit-cost", cost);
        }
        answer
    };
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(tell)).await });
    address
}
