//! A Spile in this process, on the machine's clock, and the load that keeps it busy.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use spile_server::{Config, Listeners, Server};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Client;

/// Plans that fill slowly enough to be watched, and a tenant.
const CONFIG: &str = r#"
[plans.free]
capacity = 10
refill = "1/s"

[plans.pro]
capacity = 100
refill = "50/s"

[plans.gold]
limits = [
  { name = "burst", capacity = 200, refill = "100/s" },
  { name = "daily", capacity = 10000, refill = "10000/day" },
]

[plans.exports]
concurrency = 3
hold = "1s"

[[rules]]
id = "login"
key = ["ip"]
plans = ["free"]

[[rules]]
id = "writes"
key = ["ip"]
plans = ["pro"]
mode = "shadow"

[[rules]]
id = "default"
key = ["tenant", "ip"]
plans = "tenant"
anonymous_plan = "free"

[[tenants]]
id = "acme"
plan = "gold"
api_keys = ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
"#;

/// What opens a guarded server.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A running server. It stops when dropped.
pub(crate) struct Spile {
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
    load: Option<JoinHandle<()>>,
}

impl Spile {
    pub(crate) async fn start() -> Self {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(free, free).await
    }

    pub(crate) async fn start_at(http: SocketAddr, admin: SocketAddr) -> Self {
        let mut config = parsed(Path::new(""), "");
        (config.listen.http, config.listen.admin) = (http, admin);
        Self::run(config).await
    }

    /// With more in its file, which lies in this folder.
    pub(crate) async fn start_in(folder: &Path, more: &str) -> Self {
        let mut config = parsed(folder, more);
        config.listen.http.set_port(0);
        config.listen.admin.set_port(0);
        Self::run(config).await
    }

    /// With an operator's token.
    pub(crate) async fn start_guarded() -> Self {
        let variables = [("SPILE_ADMIN_TOKEN".to_owned(), TOKEN.to_owned())];
        let parsed = Config::parse(Path::new("spile.toml"), CONFIG.to_owned(), variables);
        let mut config = parsed.unwrap_or_else(|why| panic!("{why}"));
        config.listen.http.set_port(0);
        config.listen.admin.set_port(0);
        Self::run(config).await
    }

    async fn run(config: Config) -> Self {
        let listeners = Listeners::bind(&config.listen).await.expect("the ports are free");
        let address = |listener: &tokio::net::TcpListener| listener.local_addr().expect("it is bound");
        let (http, admin) = (address(&listeners.http), address(&listeners.admin));
        let server = Server::new(&config).expect("the configuration works");
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(listeners, async {
            let _told_or_dropped = stopped.await;
        }));
        Self { http, admin, stop: Some(stop), running, load: None }
    }

    pub(crate) fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    /// Keeps asking until the server is gone: three rules, a tenant, and one caller who does not stop.
    pub(crate) fn keep_busy(mut self) -> Self {
        let (client, url) = (Client::new(), format!("http://{}/v1/check", self.http));
        let acquire = format!("http://{}/v1/acquire", self.http);
        self.load = Some(tokio::spawn(async move {
            for round in 0_u64.. {
                let user = round % 23;
                for question in [
                    json!({"ruleId": "login", "identity": format!("198.51.100.{user}")}),
                    json!({"ruleId": "login", "identity": "203.0.113.9"}),
                    json!({"ruleId": "writes", "identity": "203.0.113.7", "cost": 5}),
                    json!({"ruleId": "default", "identity": "tenant:acme", "cost": 5}),
                ] {
                    if client.post(&url, &question).await.is_err() {
                        return;
                    }
                }
                // It is not released, so that it expires.
                let question = json!({"plans": ["exports"], "identity": "203.0.113.9"});
                if client.post(&acquire, &question).await.is_err() {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            }
        }));
        self
    }

    /// Stops the server and waits until it has.
    pub(crate) async fn stop(mut self) {
        if let Some(load) = self.load.take() {
            load.abort();
        }
        let _told = self.stop.take().expect("it is stopped once").send(());
        (&mut self.running).await.expect("the server does not panic");
    }
}

impl Drop for Spile {
    fn drop(&mut self) {
        if let Some(load) = &self.load {
            load.abort();
        }
    }
}

fn parsed(folder: &Path, more: &str) -> Config {
    let parsed = Config::parse(&folder.join("spile.toml"), format!("{CONFIG}\n{more}"), []);
    parsed.unwrap_or_else(|why| panic!("{why}"))
}
