//! The configuration in force, and reloads.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use utoipa::ToSchema;

use super::AdminState;
use crate::config::LoadError;
use crate::http::Problem;
use crate::openapi::AuthErrors;
use crate::registry::split;
use crate::secret::mask;

/// Shows the configuration in force, as a file would have it. Secrets are left out.
#[utoipa::path(
    get,
    path = "/admin/v1/config",
    tag = "server",
    operation_id = "showConfig",
    security(("token" = [])),
    responses((status = 200, description = "The configuration in force, as TOML.", body = String,
               content_type = "application/toml"), AuthErrors)
)]
pub(super) async fn show(State(state): State<AdminState>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/toml")], mask(&state.control.config().to_string()))
}

/// The result of a reload.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"result": "applied", "file": "/etc/spile/spile.toml", "needsRestart": []})))]
pub(super) struct Reloaded {
    /// `applied`, or `noFile` if the server runs without a file. Then only certificates and secrets were read again, which
    /// are in separate files.
    result: &'static str,
    /// The file that was read. `null` if the server runs without one.
    file: Option<String>,
    /// Settings that have changed since the server started and wait for a restart.
    needs_restart: Vec<&'static str>,
}

/// Reads the file again: all of it takes effect, or nothing does and the answer reports why.
#[utoipa::path(
    post,
    path = "/admin/v1/config/reload",
    tag = "server",
    operation_id = "reloadConfig",
    security(("token" = [])),
    responses(
        (status = 200, description = "The file is in force, or there is none.", body = Reloaded),
        (status = 422, description = "The file is not valid; `errors` has each fault with its line. The previous configuration stays in \
         force.", body = crate::openapi::Problem, content_type = "application/problem+json"),
        AuthErrors
    )
)]
pub(super) async fn reload(State(state): State<AdminState>) -> Response {
    match state.control.reload().await {
        Ok(()) => {
            let needs_restart = state.control.needing_restart();
            let file = state.control.config().path().map(|path| path.display().to_string());
            let result = if file.is_some() { "applied" } else { "noFile" };
            Json(Reloaded { result, file, needs_restart }).into_response()
        }
        Err(why) => refused(&why).into_reply().into_response(),
    }
}

fn refused(why: &LoadError) -> Problem {
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why.to_string());
    match why {
        LoadError::Wrong(wrong) => problem.with("errors", wrong.lines().collect::<Vec<_>>()),
        LoadError::Unreadable(_)
        | LoadError::NotText(_)
        | LoadError::Emptied(_)
        | LoadError::OpenAdmin(_) => problem,
    }
}

/// The state of the store.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoreReport {
    /// Where buckets live, without passwords.
    #[schema(examples("redis://127.0.0.1:6379"))]
    url: String,
    /// The policy while it fails: `allow`, `deny` or `local`.
    on_failure: String,
    /// `closed`, or `open` while the store is not asked because it stopped answering.
    breaker: &'static str,
    /// Nodes in use; zero for the embedded store.
    nodes: u64,
    /// Callers that wait for an answer.
    waiting: u64,
    /// Why it does not answer, while it does not.
    trouble: Option<String>,
    /// Why the last reload was refused, until one succeeds.
    last_reload_refused: Option<String>,
    /// The state of the registry.
    registry: RegistryState,
}

/// The state of the registry.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RegistryState {
    /// `redis`, shared by all instances, or `instance`.
    kept: &'static str,
    /// Whether entries survive a restart of the server: in Redis, or in a file.
    survives_restart: bool,
    /// The version that is in force. `null` if the registry is not in Redis.
    version: Option<u64>,
    /// Why the registry, or a part of it, is not in force, while it is not.
    trouble: Option<String>,
    /// Entries that conflict with the file, at most 1,000. They are kept and not in force; if an earlier version of one was in force,
    /// that version still is.
    quarantined: Vec<Quarantined>,
    /// The number of entries in quarantine.
    quarantined_count: usize,
}

/// An entry in quarantine.
#[derive(Serialize, ToSchema)]
#[schema(examples(json!({
    "kind": "tenants", "name": "acme", "why": "plan: no plan is called `gold`; there are free, pro, enterprise"
})))]
struct Quarantined {
    /// `plans`, `rules` or `tenants`; `other` if the name belongs to no kind.
    kind: &'static str,
    /// The name.
    name: String,
    /// The fault, in one sentence.
    why: String,
}

/// The most entries that are shown.
const MOST_QUARANTINED: usize = 1_000;

impl RegistryState {
    fn new(state: &AdminState) -> Self {
        let (standing, config) = (state.control.standing(), state.control.config());
        let quarantine = config.quarantine();
        let shown = quarantine.iter().take(MOST_QUARANTINED).map(|(entry, why)| {
            let (kind, name) = split(entry);
            Quarantined { kind, name: name.to_owned(), why: why.to_owned() }
        });
        Self {
            kept: if state.decider.store().redis().is_some() { "redis" } else { "instance" },
            survives_restart: state.control.keeps_changes(),
            version: standing.version(),
            trouble: standing.trouble().or_else(|| quarantine.named()),
            quarantined: shown.collect(),
            quarantined_count: quarantine.len(),
        }
    }
}

/// Shows the state of the store, and why the last reload was refused.
#[utoipa::path(
    get,
    path = "/admin/v1/store",
    tag = "server",
    operation_id = "showStore",
    security(("token" = [])),
    responses((status = 200, description = "The store.", body = StoreReport), AuthErrors)
)]
pub(super) async fn store(State(admin): State<AdminState>) -> Json<StoreReport> {
    let store = admin.decider.store();
    let config = admin.control.config();
    let stats = store.redis_stats().unwrap_or_default();
    Json(StoreReport {
        url: config.store.url.to_string(),
        on_failure: config.store.on_failure.to_string(),
        breaker: if stats.is_breaker_open() { "open" } else { "closed" },
        nodes: stats.nodes,
        waiting: stats.waiting,
        trouble: store.trouble(),
        last_reload_refused: admin.control.refusal(),
        registry: RegistryState::new(&admin),
    })
}
