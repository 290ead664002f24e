//! An operator's view: a server with a file of its own, and the token that opens its admin API.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use http::Method;
use serde_json::{Value, json};
use spile_server::Config;
use tempfile::TempDir;

use super::{Answer, Spile};

pub(crate) const TOKEN: &str = "a token that nobody guesses";
pub(crate) const FILE: &str = r#"
[plans]
free = { capacity = 10, refill = "1/s" }
[[rules]]
id = "default"
plans = "tenant"
anonymous_plan = "free"
[[tenants]]
id = "acme"
plan = "free"
"#;

/// A server with a file of its own, which the test can change.
pub(crate) struct Office {
    pub(crate) spile: Spile,
    pub(crate) folder: TempDir,
}

impl Office {
    pub(crate) async fn open() -> Self {
        Self::open_with(FILE).await
    }

    /// The same with this file.
    pub(crate) async fn open_with(file: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = format!("{file}\n[admin]\nregistry_file = \"registry\"\n");
        std::fs::write(folder.path().join("spile.toml"), file).expect("the folder is ours");
        Self { spile: start(folder.path()).await, folder }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("spile.toml")
    }

    /// The same file and registry in a new server.
    pub(crate) async fn restart(self) -> Self {
        self.spile.stop().await.expect("the server ends by itself");
        Self { spile: start(self.folder.path()).await, folder: self.folder }
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: Value) -> Answer {
        self.ask_if(method, path, body, &[]).await
    }

    pub(crate) async fn ask_if(
        &self,
        method: Method,
        path: &str,
        body: Value,
        conditions: &[(&str, &str)],
    ) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, conditions, body).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        more: &[(&str, &str)],
        body: impl Into<bytes::Bytes>,
    ) -> Answer {
        self.send_as(Some("application/json"), method, path, more, body).await
    }

    pub(crate) async fn send_as(
        &self,
        content_type: Option<&str>,
        method: Method,
        path: &str,
        more: &[(&str, &str)],
        body: impl Into<bytes::Bytes>,
    ) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(content_type.map(|content_type| ("content-type", content_type)));
        headers.extend_from_slice(more);
        self.spile.send_to(self.spile.admin, method, path, &headers, body).await
    }

    /// An empty request to either listener.
    pub(crate) async fn send_to(&self, listener: SocketAddr, method: Method, path: &str) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        self.spile.send_to(listener, method, path, &[("authorization", &bearer)], "").await
    }

    /// The file with one text in the place of another, taken up by a reload.
    pub(crate) async fn reload_with(&self, from: &str, to: &str) -> Answer {
        let file = std::fs::read_to_string(self.file()).expect("the folder is ours");
        assert!(file.contains(from), "{from} in {file}");
        std::fs::write(self.file(), file.replace(from, to)).expect("the folder is ours");
        self.ask(Method::POST, "/admin/v1/config/reload", Value::Null).await
    }

    /// All that an operator could change.
    pub(crate) async fn everything(&self) -> [String; 4] {
        let read = async |path| self.get(path).await.is(200).text;
        [
            read("/admin/v1/config").await,
            read("/admin/v1/plans").await,
            read("/admin/v1/rules").await,
            read("/admin/v1/tenants").await,
        ]
    }

    /// Whom a request with this API key is counted for.
    pub(crate) async fn tenant_of(&self, api_key: &str) -> String {
        self.spile.get("/api/ping", &[("x-api-key", api_key)]).await.is(200);
        for key in ["tenant:acme", api_key] {
            let bucket = self.get(&format!("/admin/v1/buckets/{key}?plan=free")).await.is(200).json();
            if bucket["buckets"][0]["tokens"] != 10 {
                self.ask(Method::DELETE, &format!("/admin/v1/buckets/{key}"), Value::Null).await.is(204);
                return key.to_owned();
            }
        }
        "nobody".to_owned()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, Value::Null).await
    }

    pub(crate) async fn limit_of(&self, identity: &str) -> Value {
        let question = json!({"ruleId": "default", "identity": identity});
        self.spile.peek(question).await.is(200).json()["limit"].clone()
    }
}

async fn start(folder: &Path) -> Spile {
    let variables = [("SPILE_ADMIN_TOKEN".to_owned(), TOKEN.to_owned())];
    let config = Config::load(&folder.join("spile.toml"), variables);
    Spile::start_with(config.unwrap_or_else(|why| panic!("{why}"))).await
}
