//! Asks a running server.

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::patience::Patience;

/// One listener of a server, and the token that opens it.
pub(super) struct Client {
    url: String,
    token: Option<String>,
    patience: Patience,
}

impl Client {
    pub(super) fn new(url: &str, token: Option<String>, patience: Patience) -> Self {
        Self { url: url.trim_end_matches('/').to_owned(), token, patience }
    }

    /// Asks, and hands back status and JSON of any answer that comes.
    #[tokio::main(flavor = "current_thread")]
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(Bytes::from(body)))?;
        let client = HttpClient::builder(TokioExecutor::new()).build_http();
        let unreached = || format!("no server answers at {}: is `spile serve` running?", self.url);
        let answered = async {
            let response = client.request(request).await.with_context(unreached)?;
            let status = response.status();
            let bytes = response.into_body().collect().await?.to_bytes();
            Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
        };
        self.patience.bound(&self.url, answered).await
    }

    /// Asks for what must work: any other answer is an error in the server's own words.
    pub(super) fn demand(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let (status, answer) = self.ask(method, path, body)?;
        if status.is_success() { Ok(answer) } else { refused(status, &answer) }
    }
}

/// The server's own words about what is wrong.
pub(super) fn refused<T>(status: StatusCode, answer: &Value) -> anyhow::Result<T> {
    match answer["detail"].as_str() {
        Some(detail) => bail!("{detail}"),
        None => bail!("the server answered {status}"),
    }
}
