//! A server with every door open, and a store in one of three states.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use spile_server::{Config, StoreUrl};
use spile_testkit::redis::RedisServer;
use tokio::net::TcpListener;
use tokio::sync::OnceCell;

use super::door::Door;
use super::row::{BASE, Caller, Row};
use crate::grpc::client::Client as GrpcClient;
use crate::resp::client::Client as RespClient;
use crate::support::{Spile, TOKEN};

pub(crate) const API_KEY: &str = "k-acme";

/// Where the buckets are.
pub(crate) enum Store<'r> {
    Memory,
    Redis(&'r RedisServer),
    /// A Redis that nothing answers for.
    Down,
}

impl fmt::Display for Store<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Redis(_) => "Redis",
            Self::Down => "a dead Redis",
        })
    }
}

/// A server with every door open.
pub(crate) struct House {
    pub(crate) spile: Spile,
}

impl House {
    pub(super) async fn open(row: &Row, door: Door, store: &Store<'_>) -> Self {
        let rules = row.config.replace("MATCH", door.matching(row.caller));
        Self::with(&format!("{}\n{BASE}\n{rules}", row.top), store).await
    }

    /// A server with these plans, rules and tenants.
    pub(crate) async fn with(policy: &str, store: &Store<'_>) -> Self {
        let (top, tables) = policy.split_once('[').expect("there are tables");
        let hash = spile_policy::ApiKeyHash::of(API_KEY.as_bytes()).to_string();
        let tables =
            tables.replace("sha256:e4f0e7ec3dd1b5edcbd2db0e3b27c7a0a47cc0a8f3d6e70e9f5d6b9e0b1c2d3e", &hash);
        let upstream = upstream().await;
        let text = format!(
            r#"{top}
[listen]
grpc = "127.0.0.1:0"
resp = "127.0.0.1:0"
gateway = "127.0.0.1:0"
[grpc]
timeout = "5s"
[clients]
trusted_proxies = ["127.0.0.1/32"]
[[routes]]
path = "/"
upstream = "http://{upstream}"
[{tables}"#
        );
        let token = ("SPILE_ADMIN_TOKEN".to_owned(), TOKEN.to_owned());
        let parsed = Config::parse(Path::new("spile.toml"), text, [token]);
        let mut config = parsed.unwrap_or_else(|why| panic!("{why}"));
        // A test machine may be busy; what a slow answer leads to is tested where it is meant.
        config.store.timeout = Duration::from_secs(5);
        match store {
            Store::Memory => {}
            Store::Redis(redis) => {
                static HOUSES: AtomicUsize = AtomicUsize::new(0);
                config.store.url = StoreUrl::Redis(redis.url());
                // Buckets of its own.
                config.store.prefix = format!("house-{}", HOUSES.fetch_add(1, Ordering::Relaxed));
            }
            // Nothing listens on port 1, and a connection to it is refused at once.
            Store::Down => config.store.url = StoreUrl::Redis("redis://127.0.0.1:1".to_owned()),
        }
        Self { spile: Spile::start_with(config).await }
    }

    pub(crate) async fn grpc(&self) -> GrpcClient {
        GrpcClient::connect(self.spile.grpc.expect("the listener is on")).await
    }

    pub(crate) async fn resp(&self) -> RespClient {
        RespClient::connect(self.spile.resp.expect("the listener is on")).await
    }

    /// What each bucket of the row still has, in the row's own words.
    pub(super) async fn left(&self, row: &Row, door: Door) -> Vec<String> {
        let mut left = Vec::new();
        for line in row.left_at(door) {
            let mut words = line.rsplitn(3, ' ').collect::<Vec<_>>();
            words.reverse();
            let [key, plan, _] = words[..] else { panic!("{line}") };
            let remaining = self.remaining(key, plan).await;
            left.push(format!("{key} {plan} {remaining}"));
        }
        left
    }

    /// What a key has left under a plan.
    pub(super) async fn remaining(&self, key: &str, plan: &str) -> String {
        let question = json!({"identity": key, "plans": [plan], "cost": 0});
        let answer = self.spile.peek(question).await.is(200).json();
        answer["remaining"].to_string()
    }
}

/// The headers of a request from this caller, through a proxy that is trusted.
pub(super) fn headers(caller: Caller) -> Vec<(&'static str, &'static str)> {
    let mut headers = vec![("x-forwarded-for", "203.0.113.7")];
    match caller {
        Caller::Stranger => {}
        Caller::Acme => headers.push(("x-api-key", API_KEY)),
        Caller::WrongKey => headers.push(("x-api-key", "a guess")),
    }
    headers
}

/// One upstream for all gateways.
async fn upstream() -> SocketAddr {
    static UPSTREAM: OnceCell<SocketAddr> = OnceCell::const_new();
    *UPSTREAM
        .get_or_init(|| async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("port 0 is always free");
            listener.set_nonblocking(true).expect("a socket of ours");
            let address = listener.local_addr().expect("it is bound");
            // On a thread of its own: each test ends its runtime.
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    let listener = TcpListener::from_std(listener).expect("a listener");
                    let app = axum::Router::new().fallback(async || "the page");
                    axum::serve(listener, app).await.expect("it serves");
                });
            });
            address
        })
        .await
}
