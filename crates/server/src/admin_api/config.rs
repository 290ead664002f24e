//! What the server runs with, and reading it again.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::json;

use super::Office;
use crate::config::LoadError;
use crate::http::Problem;

/// The configuration in force, as a file would have it.
pub(super) async fn show(State(office): State<Office>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/toml")], office.control.config().to_string())
}

/// Reads the file once more: all of it takes effect, or nothing does and the answer says why.
pub(super) async fn reload(State(office): State<Office>) -> Response {
    let control = Arc::clone(&office.control);
    // Reading and checking a large file takes a while, and must not keep others waiting.
    let reloaded = tokio::task::spawn_blocking(move || control.reload()).await;
    match reloaded {
        Ok(Ok(())) => Json(json!({"result": "applied", "needsRestart": office.control.needing_restart()}))
            .into_response(),
        Ok(Err(why)) => refused(&why).into_reply().into_response(),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

fn refused(why: &LoadError) -> Problem {
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why.to_string());
    match why {
        LoadError::Wrong(wrong) => problem.with("errors", wrong.lines().collect::<Vec<_>>()),
        LoadError::Unreadable(_) => problem,
    }
}

/// How the store stands.
pub(super) async fn store(State(office): State<Office>) -> impl IntoResponse {
    let store = office.decider.store();
    let config = office.control.config();
    let stats = store.redis_stats().unwrap_or_default();
    Json(json!({
        "url": config.store.url.to_string(),
        "onFailure": config.store.on_failure.to_string(),
        "breaker": if stats.is_breaker_open() { "open" } else { "closed" },
        "nodes": stats.nodes,
        "waiting": stats.waiting,
        "trouble": store.trouble(),
        "lastReloadRefused": office.control.refusal(),
    }))
}
