//! Forward-auth behind a real Caddy, set up as the guide shows it.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use spile_server::Config;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::support::Spile;

const FILE: &str = r#"
[clients]
trusted_proxies = ["127.0.0.1/32"]
[plans]
pages = { capacity = 5, refill = "1/s" }
login = { capacity = 1, refill = "1/min" }
[[rules]]
id = "login"
match = { path = "/login", methods = ["POST"] }
plans = ["login"]
[[rules]]
id = "default"
plans = ["pages"]
"#;

/// The settings that the guide shows.
const GUIDE: &str = include_str!("../../../../docs/guide/http-api.md");

/// A running Caddy on a socket in a folder of its own. It is stopped when dropped.
struct Caddy {
    process: Child,
    folder: TempDir,
}

impl Caddy {
    fn start(spile: &Spile) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let (_, guide) = GUIDE.split_once("```caddyfile\n").expect("the guide shows a Caddyfile");
        let (guide, _) = guide.split_once("```").expect("a block ends");
        let guide = guide
            .replace("127.0.0.1:8080", &spile.http.to_string())
            .replace("reverse_proxy app:3000", "respond \"the page\"")
            // Whoever comes by a socket has no address: the test says who it is.
            .replace("uri /v1/auth", "uri /v1/auth\n header_up X-Forwarded-For {header.X-Test-Client}");
        let settings = format!(
            "{{\n admin off\n auto_https off\n}}\nhttp://shop {{\n bind unix/{path}/front\n{guide}}}\n"
        );
        std::fs::write(folder.path().join("Caddyfile"), settings).expect("the folder is ours");
        let process = Command::new("caddy")
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(folder.path().join("Caddyfile"))
            .env("HOME", folder.path())
            .env("XDG_DATA_HOME", folder.path())
            .env("XDG_CONFIG_HOME", folder.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("caddy runs; scripts/install-test-deps installs it");
        spile_testkit::wait::until_true("caddy listens", || folder.path().join("front").exists());
        Self { process, folder }
    }

    /// What Caddy answers, head and body.
    async fn ask(&self, method: &str, path: &str, client: &str) -> String {
        let mut caller = UnixStream::connect(self.folder.path().join("front")).await.expect("caddy listens");
        let request = format!("{method} {path} HTTP/1.0\r\nhost: shop\r\nx-test-client: {client}\r\n\r\n");
        caller.write_all(request.as_bytes()).await.expect("caddy reads");
        let mut answer = String::new();
        caller.read_to_string(&mut answer).await.expect("caddy answers");
        answer
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        // Both fail where Caddy has ended already, which is what is wanted.
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
    }
}

#[track_caller]
fn assert_says(answer: &str, words: &[&str]) {
    let lower = answer.to_ascii_lowercase();
    for word in words {
        assert!(lower.contains(&word.to_ascii_lowercase()), "{word} in {answer}");
    }
}

#[tokio::test]
async fn caddy_lets_through_what_the_rules_allow_and_hands_on_the_429_as_it_is() {
    let config = Config::parse(Path::new("spile.toml"), FILE.to_owned(), []);
    let spile = Spile::start_with(config.unwrap_or_else(|why| panic!("{why}"))).await;
    let caddy = Caddy::start(&spile);

    let answer = caddy.ask("POST", "/login?next=/", "203.0.113.7").await;
    assert_says(&answer, &[" 200 OK", "the page", "X-Ratelimit-Limit: 1\r", "X-Ratelimit-Remaining: 0\r"]);
    let answer = caddy.ask("POST", "/login", "203.0.113.7").await;
    assert_says(
        &answer,
        &[
            " 429 ",
            "Retry-After: 60\r",
            "X-Ratelimit-Remaining: 0\r",
            "RateLimit: \"login\";r=0;t=60",
            "Cache-Control: no-store",
            "Content-Type: application/problem+json",
            "\"title\":\"Rate limit exceeded\"",
        ],
    );
    assert!(!answer.contains("the page"), "{answer}");
    let answer = caddy.ask("GET", "/login", "203.0.113.7").await;
    assert_says(&answer, &[" 200 OK", "X-Ratelimit-Remaining: 4\r"]);
    let answer = caddy.ask("POST", "/login", "203.0.113.8").await;
    assert_says(&answer, &[" 200 OK"]);
}
