//! Checks the token of admin requests.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};

use spile_listener::GuessLimiter;

use crate::control::Control;
use crate::http::Problem;
use crate::secret::Secret;

/// The state that tokens are checked against.
#[derive(Clone)]
pub(crate) struct TokenGuard {
    pub(crate) control: Arc<Control>,
    pub(crate) guesses: Arc<GuessLimiter>,
    /// A token for this run only. It is accepted until one is configured.
    pub(crate) one_time: Option<Secret>,
}

const BEARER: &[u8] = b"Bearer ";

/// Admits a request that carries the token. Refuses every request if there is no token.
pub(crate) async fn require(
    State(guard): State<TokenGuard>,
    peer: ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    // Reads the current token: a replaced one is no longer accepted.
    let config = guard.control.config();
    let Some(token) = config.admin.token.as_ref().or(guard.one_time.as_ref()) else {
        let detail = "no token is configured: set SPILE_ADMIN_TOKEN or admin.token_file";
        return Problem::new(StatusCode::FORBIDDEN, detail).into_response();
    };
    guard.answer(token, peer, request, next).await
}

/// Like [`require`], but admits every request if no token is configured: the listener is then open on loopback only. The one-time token
/// is not required.
pub(crate) async fn require_if_any(
    State(guard): State<TokenGuard>,
    peer: ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let config = guard.control.config();
    let response = match &config.admin.token {
        Some(token) => guard.answer(token, peer, request, next).await,
        None => next.run(request).await,
    };
    if is_endless(&response) {
        ended_with(config.admin.token.clone(), guard.control, response)
    } else {
        response
    }
}

/// True if the answer is a stream of events, which has no end.
fn is_endless(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Ends the answer when the token that opened it is no longer in force. Checked before each event.
fn ended_with(opened_by: Option<Secret>, control: Arc<Control>, response: Response) -> Response {
    let still_opens = move || control.config().admin.token == opened_by;
    response.map(|body| {
        Body::from_stream(body.into_data_stream().take_while(move |_| std::future::ready(still_opens())))
    })
}

impl TokenGuard {
    async fn answer(
        &self,
        token: &Secret,
        ConnectInfo(peer): ConnectInfo<SocketAddr>,
        request: Request,
        next: Next,
    ) -> Response {
        let (method, path) = (request.method().as_str(), shown(request.uri().path()));
        let judged = presented(request.headers())
            .map(|presented| self.guesses.check(peer.ip(), presented, || token.is(presented)));
        match judged {
            Some(Ok(true)) => return next.run(request).await,
            Some(Err(why)) => {
                tracing::warn!(target: "spile::audit", %peer, method, path, "refused: too many wrong tokens");
                return Problem::guessing(why).into_response();
            }
            Some(Ok(false)) | None => {
                tracing::warn!(target: "spile::audit", %peer, method, path, "refused: no or wrong token");
            }
        }
        Problem::new(StatusCode::UNAUTHORIZED, "Authorization: this path takes `Bearer` and the admin token")
            .with("field", "Authorization")
            .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
            .into_response()
    }
}

/// The path without the key that it may contain.
fn shown(path: &str) -> &str {
    const BUCKETS: &str = "/admin/v1/buckets/";
    if path.starts_with(BUCKETS) { BUCKETS } else { path }
}

/// The token of the `Authorization` field. `None` if there are two, because either could count.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, token) = only.as_bytes().split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then(|| token.trim_ascii_start())
}
