//! One instance of several: a process of its own, asked over HTTP.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use spile_core::{Clock, SystemClock};

use crate::support::{Answer, Process};

/// How soon a change must be in force everywhere.
pub(super) const SOON: Duration = Duration::from_secs(1);

/// A running instance.
pub(super) struct Instance {
    pub(super) process: Process,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Instance {
    pub(super) fn start(store: &str) -> Self {
        let variables = [Process::PATIENT, ("SPILE_ADMIN_TOKEN", Process::TOKEN)];
        let process = Process::serve_with(&["--store", store], &variables);
        Self { process, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// The same with this file.
    pub(super) fn start_with(store: &str, config: &std::path::Path) -> Self {
        let config = config.to_str().expect("the folder's name is text");
        let variables = [Process::PATIENT, ("SPILE_ADMIN_TOKEN", Process::TOKEN)];
        let process = Process::serve_with(&["--store", store, "--config", config], &variables);
        Self { process, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// What it has logged so far.
    pub(super) fn log(&self) -> String {
        self.process.log()
    }

    pub(super) async fn put(&self, path: &str, document: Value) -> Answer {
        self.put_if(path, document, &[]).await
    }

    pub(super) async fn put_if(&self, path: &str, document: Value, conditions: &[(&str, &str)]) -> Answer {
        self.ask("admin", Method::PUT, &format!("/admin/v1/{path}"), conditions, document.to_string()).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.ask("admin", Method::GET, &format!("/admin/v1/{path}"), &[], String::new()).await
    }

    pub(super) async fn post(&self, path: &str) -> Answer {
        self.ask("admin", Method::POST, &format!("/admin/v1/{path}"), &[], String::new()).await
    }

    pub(super) async fn delete(&self, path: &str) -> Answer {
        self.ask("admin", Method::DELETE, &format!("/admin/v1/{path}"), &[], String::new()).await
    }

    pub(super) async fn dashboard(&self, path: &str) -> Answer {
        self.ask("admin", Method::GET, &format!("/dashboard/{path}"), &[], String::new()).await
    }

    pub(super) async fn readiness(&self) -> Answer {
        self.ask("admin", Method::GET, "/readyz", &[], String::new()).await
    }

    pub(super) async fn metrics(&self) -> String {
        self.ask("admin", Method::GET, "/metrics", &[], String::new()).await.is(200).text
    }

    pub(super) async fn check(&self, question: Value) -> Answer {
        self.ask("http", Method::POST, "/v1/check", &[], question.to_string()).await
    }

    pub(super) async fn ping(&self, api_key: &str) -> Answer {
        self.ask("http", Method::GET, "/api/ping", &[("x-api-key", api_key)], String::new()).await
    }

    /// The limit that binds a tenant, or nothing where there is no answer.
    pub(super) async fn limit_of(&self, tenant: &str) -> Option<u64> {
        self.limit_under("default", &format!("tenant:{tenant}")).await
    }

    pub(super) async fn limit_under(&self, rule: &str, identity: &str) -> Option<u64> {
        let question = json!({"ruleId": rule, "identity": identity}).to_string();
        let answer = self.ask("http", Method::POST, "/v1/peek", &[], question).await;
        if answer.status == 200 { answer.json()["limit"].as_u64() } else { None }
    }

    async fn ask(
        &self,
        listener: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Answer {
        let url = format!("http://{}{path}", self.process.address(listener));
        let mut request =
            Request::builder().method(method).uri(url).header("content-type", "application/json");
        if listener == "admin" {
            request = request.header("authorization", format!("Bearer {}", Process::TOKEN));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body)).expect("a test sends what can be sent");
        let response = self.client.request(request).await.expect("the instance answers");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("the answer arrives whole").to_bytes();
        let text = String::from_utf8(bytes.into()).expect("answers are text");
        Answer { status: parts.status, headers: parts.headers, text }
    }
}

/// Asks until it is so, and says how long that took. It must be so `within` the time.
pub(super) async fn becomes(what: &str, within: Duration, mut so: impl AsyncFnMut() -> bool) -> Duration {
    let clock = SystemClock::new();
    let started = clock.now();
    loop {
        let met = so().await;
        let waited = Duration::from_micros(clock.now().since_us(started));
        assert!(waited < within, "{what}: not within {within:?}");
        if met {
            return waited;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
