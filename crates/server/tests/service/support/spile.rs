//! A server in this process, on ports of its own and a clock that stands still.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use spile_core::{FakeClock, Micros};
use spile_server::{Config, Listeners, Server, StoreUrl};
use spile_testkit::redis::RedisServer;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Answer;

/// A running server. It stops when dropped.
pub(crate) struct Spile {
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) grpc: Option<SocketAddr>,
    pub(crate) resp: Option<SocketAddr>,
    pub(crate) gateway: Option<SocketAddr>,
    clock: FakeClock,
    client: Client<HttpConnector, Full<Bytes>>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
    /// Stopped after the server that uses it.
    redis: Option<RedisServer>,
}

impl Spile {
    /// The moment at which every test starts.
    pub(crate) const START: Micros = Micros::from_secs(1_800_000_000);

    pub(crate) async fn start() -> Self {
        Self::start_with(Config::default()).await
    }

    /// The same on a Redis of its own, whose buckets follow the test's clock too.
    pub(crate) async fn start_on_redis() -> Self {
        let redis = RedisServer::start();
        let mut config = Config::default();
        config.store.url = StoreUrl::Redis(redis.url());
        // A test machine may be busy; what a slow answer leads to is tested where it is meant.
        config.store.timeout = Duration::from_secs(5);
        Self { redis: Some(redis), ..Self::start_with(config).await }
    }

    pub(crate) async fn start_with(mut config: Config) -> Self {
        config.listen.http.set_port(0);
        config.listen.admin.set_port(0);
        let listeners = Listeners::bind(&config.listen).await.expect("port 0 is always free");
        let address = |listener: &tokio::net::TcpListener| listener.local_addr().expect("it is bound");
        let (http, admin) = (address(&listeners.http), address(&listeners.admin));
        let (grpc, resp) = (listeners.grpc.as_ref().map(address), listeners.resp.as_ref().map(address));
        let gateway = listeners.gateway.as_ref().map(address);
        let clock = FakeClock::at(Self::START);
        let server = Server::on_clock(&config, clock.clone()).expect("the configuration works");
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(listeners, async {
            let _told_or_dropped = stopped.await;
        }));
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { http, admin, grpc, resp, gateway, clock, client, stop: Some(stop), running, redis: None }
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub(crate) async fn check(&self, question: Value) -> Answer {
        self.post("/v1/check", question.to_string()).await
    }

    pub(crate) async fn peek(&self, question: Value) -> Answer {
        self.post("/v1/peek", question.to_string()).await
    }

    pub(crate) async fn refund(&self, question: Value) -> Answer {
        self.post("/v1/refund", question.to_string()).await
    }

    pub(crate) async fn batch(&self, questions: Value) -> Answer {
        self.post("/v1/check/batch", questions.to_string()).await
    }

    pub(crate) async fn post(&self, path: &str, json: impl Into<Bytes>) -> Answer {
        self.send(Method::POST, path, &[("content-type", "application/json")], json).await
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::GET, path, headers, "").await
    }

    pub(crate) async fn admin(&self, path: &str) -> Answer {
        self.send_to(self.admin, Method::GET, path, &[], "").await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.send_to(self.http, method, path, headers, body).await
    }

    pub(crate) async fn send_to(
        &self,
        to: SocketAddr,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("http://{to}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("a test sends what can be sent");
        let response = self.client.request(request).await.expect("the server answers");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("the answer arrives whole").to_bytes();
        let text = String::from_utf8(bytes.into()).expect("answers are text");
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) fn redis(&mut self) -> &mut RedisServer {
        self.redis.as_mut().expect("this test runs on Redis")
    }

    /// Tells the server to stop, and hands back what resolves once it has.
    pub(crate) fn stop(mut self) -> JoinHandle<()> {
        // A server that is already gone has stopped too.
        let _told = self.stop.take().expect("it is stopped once").send(());
        self.running
    }
}
