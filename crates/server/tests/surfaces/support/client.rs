//! A small HTTP client.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Error};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

#[derive(Clone)]
pub(crate) struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    token: Option<String>,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self { http: legacy::Client::builder(TokioExecutor::new()).build_http(), token: None }
    }

    /// The same, for somebody who knows the operator's token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: Some(format!("Bearer {token}")), ..self.clone() }
    }

    pub(crate) async fn get(&self, url: &str) -> Result<(StatusCode, String), Error> {
        self.send(Method::GET, url, String::new()).await
    }

    pub(crate) async fn post(&self, url: &str, json: &Value) -> Result<(StatusCode, String), Error> {
        self.send(Method::POST, url, json.to_string()).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        body: String,
    ) -> Result<(StatusCode, String), Error> {
        let mut request =
            Request::builder().method(method).uri(url).header("content-type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        let request = request.body(Full::from(body)).expect("a test sends what can be sent");
        let response = self.http.request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes);
        let text = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
        Ok((status, text))
    }
}
