//! Forward-auth behind a real nginx, set up as the guide shows it.

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

/// A running nginx on sockets in a folder of its own. It is stopped when dropped.
struct Nginx {
    process: Child,
    folder: TempDir,
}

impl Nginx {
    fn start(spile: &Spile) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let settings = format!(
            r#"daemon off; master_process off; pid {path}/pid; error_log {path}/errors;
events {{}}
http {{
  access_log off;
  client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;
  fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;
  server {{ listen unix:{path}/app; location / {{ return 200 "the page"; }} }}
  server {{
    listen unix:{path}/front;
    location / {{
      auth_request /limit;
      auth_request_set $retry_after $upstream_http_retry_after;
      error_page 403 = @limited;
      proxy_pass http://unix:{path}/app;
    }}
    location = /limit {{
      internal;
      proxy_pass http://{spile}/v1/auth?denyStatus=403;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_set_header X-Original-URI $request_uri;
      proxy_set_header X-Original-Method $request_method;
      proxy_set_header X-Forwarded-For $http_x_test_client;
    }}
    location @limited {{ add_header Retry-After $retry_after always; return 429; }}
  }}
}}"#,
            spile = spile.http,
        );
        std::fs::write(folder.path().join("nginx.conf"), settings).expect("the folder is ours");
        let process = Command::new(nginx())
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(folder.path().join("nginx.conf"))
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx runs; scripts/install-test-deps installs it");
        spile_testkit::wait::until_true("nginx listens", || folder.path().join("front").exists());
        Self { process, folder }
    }

    /// What nginx answers, head and body.
    async fn ask(&self, method: &str, path: &str, client: &str) -> String {
        let mut caller = UnixStream::connect(self.folder.path().join("front")).await.expect("nginx listens");
        let request = format!("{method} {path} HTTP/1.0\r\nhost: shop\r\nx-test-client: {client}\r\n\r\n");
        caller.write_all(request.as_bytes()).await.expect("nginx reads");
        let mut answer = String::new();
        caller.read_to_string(&mut answer).await.expect("nginx answers");
        answer
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Both fail where nginx has ended already, which is what is wanted.
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Debian keeps nginx in a folder that an ordinary user's PATH may lack.
fn nginx() -> &'static str {
    if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" }
}

#[tokio::test]
async fn nginx_lets_through_what_the_rules_allow_and_answers_429_itself() {
    let config = Config::parse(Path::new("spile.toml"), FILE.to_owned(), []);
    let spile = Spile::start_with(config.unwrap_or_else(|why| panic!("{why}"))).await;
    let nginx = Nginx::start(&spile);

    let answer = nginx.ask("POST", "/login?next=/", "203.0.113.7").await;
    assert!(answer.contains(" 200 OK") && answer.ends_with("the page"), "{answer}");
    let answer = nginx.ask("POST", "/login", "203.0.113.7").await;
    assert!(answer.contains(" 429 ") && answer.contains("Retry-After: 60"), "{answer}");
    let answer = nginx.ask("GET", "/login", "203.0.113.7").await;
    assert!(answer.contains(" 200 OK"), "another rule is for reading the form: {answer}");
    let answer = nginx.ask("POST", "/login", "203.0.113.8").await;
    assert!(answer.contains(" 200 OK"), "another client has tokens of its own: {answer}");
}
