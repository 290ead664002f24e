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
    // In a task of its own, so that a caller who leaves does not end it half-way.
    let control = Arc::clone(&office.control);
    match tokio::spawn(async move { control.reload().await }).await {
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
    let registry = office.control.standing();
    Json(json!({
        "url": config.store.url.to_string(),
        "onFailure": config.store.on_failure.to_string(),
        "breaker": if stats.is_breaker_open() { "open" } else { "closed" },
        "nodes": stats.nodes,
        "waiting": stats.waiting,
        "trouble": store.trouble(),
        "lastReloadRefused": office.control.refusal(),
        "registry": {
            "kept": if store.redis().is_some() { "redis" } else { "instance" },
            "version": registry.version(),
            "trouble": registry.trouble(),
        },
    }))
}
