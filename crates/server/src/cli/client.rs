//! Asks a running server.

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::connection::connect;
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
        let url: Uri = self.url.parse().with_context(|| format!("`{}` is not a URL", self.url))?;
        let authority = url.authority().map(ToString::to_string).unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path).header(HOST, authority);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(Bytes::from(body)))?;
        let unreached = || format!("no server answers at {}: is `spile serve` running?", self.url);
        let answered = async {
            let stream = TokioIo::new(connect(&url).await.with_context(unreached)?);
            let (mut sender, connection) = http1::handshake(stream).await.with_context(unreached)?;
            // Ends with the answer, or with an error that the answer tells of.
            tokio::spawn(connection);
            let response = sender.send_request(request).await.with_context(unreached)?;
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
