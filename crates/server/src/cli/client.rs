//! Asks a running server.

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::connection::connect;
use super::patience::Patience;
use super::server_url::ServerUrl;

/// The largest answer that is read. A hundred thousand tenants take less.
const MOST_BYTES: usize = 64 << 20;

/// A client of one listener, with the token for it.
pub(super) struct Client {
    url: ServerUrl,
    token: Option<String>,
    patience: Patience,
}

impl Client {
    pub(super) fn new(url: &ServerUrl, token: Option<String>, patience: Patience) -> Self {
        Self { url: url.clone(), token, patience }
    }

    /// Sends a request, and returns the status and the JSON of any answer.
    #[tokio::main(flavor = "current_thread")]
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.url.authority());
        if let Some(token) = &self.token {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
            let bearer =
                bearer.map_err(|_| anyhow!("the admin token has characters that no header takes"))?;
            request = request.header(AUTHORIZATION, bearer);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(Bytes::from(body)))?;
        let unreached = || format!("no server answers at {}: is `spile serve` running?", self.url);
        let answered = async {
            let stream = TokioIo::new(connect(&self.url).await.with_context(unreached)?);
            let (mut sender, connection) = http1::handshake(stream).await.with_context(unreached)?;
            // Ends with the answer, or with an error that the answer reports.
            tokio::spawn(connection);
            let response = sender.send_request(request).await.with_context(unreached)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
            let bytes =
                body.map_err(|why| anyhow!("the answer of {} broke off: {why}", self.url))?.to_bytes();
            let text = || Value::String(String::from_utf8_lossy(&bytes).trim().to_owned());
            Ok((status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text())))
        };
        self.patience.bound(&self.url.to_string(), answered).await
    }

    /// Sends a request that must succeed. Any other answer is an error with the server's message.
    pub(super) fn demand(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let (status, answer) = self.ask(method, path, body)?;
        match missing(path).filter(|_| status == StatusCode::NOT_FOUND && answer["field"] == "path") {
            _ if status.is_success() => Ok(answer),
            Some((kind, name)) if answer["detail"] == NO_ENTRY => {
                bail!("there is no {kind} `{name}`; `spile {kind} list` shows those that there are")
            }
            _ => self.refused(status, &answer),
        }
    }

    /// Returns an error with the server's message, or with advice about the token.
    pub(super) fn refused<T>(&self, status: StatusCode, answer: &Value) -> anyhow::Result<T> {
        match (status, answer["detail"].as_str()) {
            (StatusCode::UNAUTHORIZED, _) if self.token.is_none() => {
                bail!("{} asks for its admin token: set SPILE_ADMIN_TOKEN to it, or pass --token", self.url)
            }
            (StatusCode::UNAUTHORIZED, _) => {
                bail!("{} has another admin token than the one in SPILE_ADMIN_TOKEN or --token", self.url)
            }
            (StatusCode::FORBIDDEN, Some(_)) => bail!(
                "the admin API of {} is closed, because that server has no admin token: start the server with \
                 SPILE_ADMIN_TOKEN or admin.token_file, and set SPILE_ADMIN_TOKEN here to the same",
                self.url
            ),
            // The server says `path` for a name that was typed on the command line.
            (_, Some(detail)) => bail!("{}", detail.strip_prefix("path: ").unwrap_or(detail)),
            (_, None) => bail!("{} answered {status}: is this the right listener?", self.url),
        }
    }
}

/// The server's message about a name that no entry has.
const NO_ENTRY: &str = "path: nothing has this name";

/// The kind and the name of the entry that a path is about.
fn missing(path: &str) -> Option<(&str, String)> {
    let mut steps = path.strip_prefix("/admin/v1/")?.split('/');
    let (kind, name) = (steps.next()?.strip_suffix('s')?, steps.next()?);
    Some((kind, percent_encoding::percent_decode_str(name).decode_utf8_lossy().into_owned()))
}
