//! The gateway listener of the service: the file's routes, under the file's plans, rules and tenants.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use spile_core::FakeClock;
use spile_server::{Config, Listeners, Server};
use tokio::net::TcpListener;

/// A service whose gateway forwards to an echo of the tenant's name.
struct Spile {
    gateway: SocketAddr,
    admin: SocketAddr,
    clock: FakeClock,
}

impl Spile {
    async fn start() -> Self {
        let config = Config::parse(Path::new("spile.toml"), file(echo().await), []).expect("a sound file");
        let listeners = Listeners::bind(&config.listen).await.expect("port 0 is always free");
        let gateway = listeners.gateway.as_ref().expect("a gateway").local_addr().expect("it is bound");
        let admin = listeners.admin.local_addr().expect("it is bound");
        let clock = FakeClock::default();
        let server = Server::on_clock(&config, clock.clone()).expect("the configuration works");
        tokio::spawn(server.run(listeners, std::future::pending()));
        Self { gateway, admin, clock }
    }

    async fn get(&self, path: &str, api_key: Option<&str>) -> (u16, String, Option<String>) {
        ask(self.gateway, path, api_key).await
    }
}

async fn ask(address: SocketAddr, path: &str, api_key: Option<&str>) -> (u16, String, Option<String>) {
    let mut request = Request::get(format!("http://{address}{path}"));
    if let Some(key) = api_key {
        request = request.header("x-api-key", key);
    }
    let client = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request.body(Full::<Bytes>::default()).unwrap()).await.expect("an answer");
    let status = answer.status().as_u16();
    let retry = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let body = answer.into_body().collect().await.expect("a whole answer").to_bytes();
    (status, String::from_utf8(body.into()).unwrap(), retry)
}

async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tell = |request: axum::extract::Request| async move {
        let tenant = request.headers().get("x-tenant-id").map_or("nobody", |value| value.to_str().unwrap());
        format!("{tenant} at {}", request.uri().path())
    };
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(tell)).await });
    address
}

fn file(upstream: SocketAddr) -> String {
    format!(
        r#"
        [listen]
        http = "127.0.0.1:0"
        admin = "127.0.0.1:0"
        gateway = "127.0.0.1:0"

        [plans.free]
        capacity = 10
        refill = "1/s"

        [plans.pro]
        capacity = 100
        refill = "50/s"

        [[rules]]
        id = "default"
        key = ["tenant", "ip"]
        plans = "tenant"
        anonymous_plan = "free"

        [[tenants]]
        id = "acme"
        plan = "pro"
        api_keys = ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]

        [[routes]]
        path = "/"
        upstream = "http://{upstream}"

        [[routes]]
        path = "/private"
        upstream = "http://{upstream}"
        strip_prefix = true
        require_api_key = true
        "#
    )
}

#[tokio::test]
async fn the_free_plan_lets_ten_of_fifteen_through_and_five_more_after_five_seconds() {
    let spile = Spile::start().await;
    for _ in 0..10 {
        assert_eq!(spile.get("/scores", None).await.0, 200);
    }
    for _ in 0..5 {
        let (status, _, retry) = spile.get("/scores", None).await;
        assert_eq!((status, retry.as_deref()), (429, Some("1")));
    }
    spile.clock.advance(Duration::from_secs(5));
    for _ in 0..5 {
        assert_eq!(spile.get("/scores", None).await.0, 200);
    }
    assert_eq!(spile.get("/scores", None).await.0, 429);
}

#[tokio::test]
async fn routes_know_the_tenants_of_the_file() {
    let spile = Spile::start().await;
    assert_eq!(spile.get("/private/scores", None).await.0, 401);
    assert_eq!(spile.get("/private/scores", Some("guess")).await.0, 401);
    let (status, body, _) = spile.get("/private/scores", Some("test")).await;
    assert_eq!((status, body.as_str()), (200, "acme at /scores"));
    let (_, metrics, _) = ask(spile.admin, "/metrics", None).await;
    assert!(
        metrics.contains("http_server_requests_total{listener=\"gateway\",status=\"401\"} 2"),
        "{metrics}"
    );
}

#[test]
fn every_key_of_routes_and_gateway_is_read_and_shown() {
    let file = r#"
        [gateway]
        certificate_file = "/etc/spile/chain.pem"
        key_file = "/etc/spile/key.pem"
        jwt_key_file = "/etc/spile/jwks.json"
        jwt_keys = "jwks"
        jwt_issuer = "https://issuer.example"
        jwt_audience = "scores"
        jwt_leeway = "5s"
        jwt_tenant_claim = "org"
        jwt_plan_claim = "tier"

        [[routes]]
        path = "/scores"
        hosts = ["api.example.com", "*.example.org"]
        upstream = ["http://127.0.0.1:9000", "h2c://127.0.0.1:9001"]
        balance = "least_outstanding"
        rewrite_prefix = "/v2"
        timeout = "10s"
        connect_timeout = "1s"
        idle_timeout = "20s"
        retries = 2
        max_body = 1000
        health_path = "/health"
        only_plans = ["pro"]
        cost_from_response = true
        adaptive = true
        max_concurrency = 50
    "#;
    let config = Config::parse(Path::new("spile.toml"), file.to_owned(), []).expect("a sound file");
    let route = &config.routes[0];
    assert_eq!((route.upstreams.len(), route.hosts.len(), route.retries), (2, 2, 2));
    let shown = config.to_string();
    let again = Config::parse(Path::new("spile.toml"), shown.clone(), []).expect("what is shown can be read");
    assert_eq!(again.to_string(), shown);
    for key in ["jwt_plan_claim", "rewrite_prefix", "least_outstanding", "max_concurrency", "health_path"] {
        assert!(shown.contains(key), "{key}");
    }
}

#[test]
fn what_is_wrong_with_a_route_is_said() {
    let file = r#"
        [gateway]
        key_file = "key.pem"
        [[routes]]
        path = "/a"
        upstream = ["http://127.0.0.1:9000/path"]
        hosts = ["not a host"]
        balance = "fairly"
        retries = 9
    "#;
    let why = Config::parse(Path::new("spile.toml"), file.to_owned(), []).expect_err("all of it is wrong");
    let why = why.to_string();
    for words in ["stand together", "is no upstream", "is no host", "no way to balance", "9 retries"] {
        assert!(why.contains(words), "{words}: {why}");
    }
}
