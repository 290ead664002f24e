//! Who may come in.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};

use crate::control::Control;
use crate::http::Problem;

/// Lets the request through to whoever answers it, if it carries the token.
pub(super) async fn require(State(control): State<Arc<Control>>, request: Request, next: Next) -> Response {
    // The token of now: one that was replaced no longer opens anything.
    let config = control.config();
    let Some(token) = &config.admin.token else {
        let detail = "no token is configured: set SPILE_ADMIN_TOKEN or admin.token_file";
        return Problem::new(StatusCode::FORBIDDEN, detail).into_reply().into_response();
    };
    let presented = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let presented = presented.and_then(|value| value.strip_prefix(b"Bearer "));
    if presented.is_some_and(|presented| token.is(presented)) {
        return next.run(request).await;
    }
    tracing::warn!(target: "spile::audit", path = request.uri().path(), "refused: no or wrong token");
    Problem::new(StatusCode::UNAUTHORIZED, "Authorization: this path takes `Bearer` and the admin token")
        .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
        .into_reply()
        .into_response()
}
