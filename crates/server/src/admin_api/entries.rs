//! Plans, rules and tenants: listed, shown, put and removed.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::Office;
use crate::control::{Condition, ControlError, Entry};
use crate::fault::Fault;
use crate::hex::Hex;
use crate::http::Problem;
use crate::registry::Kind;
use crate::tenant::ApiKeyHash;
use crate::typed::parse;

/// Random bytes in an API key.
const KEY_BYTES: usize = 24;

pub(super) async fn list(
    State(office): State<Office>,
    Path(kind): Path<String>,
) -> Result<Response, Problem> {
    let entries = office.control.list(known(&kind)?);
    let documents: Vec<Value> = entries.into_iter().map(|entry| entry.document).collect();
    Ok(Json(json!({ kind: documents })).into_response())
}

pub(super) async fn show(
    State(office): State<Office>,
    Path((kind, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let entry = office.control.get(known(&kind)?, &name).ok_or(ControlError::Missing)?;
    Ok(shown(StatusCode::OK, entry))
}

pub(super) async fn put(
    State(office): State<Office>,
    Path((kind, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let kind = known(&kind)?;
    let document: Map<String, Value> = parse(&body)?;
    let was_there = office.control.get(kind, &name).is_some();
    let document = kept_keys(&office, kind, &name, told(document));
    let entry = changed(office, move |office| {
        office.control.put(kind, &name, Value::Object(document), &condition(&headers)?)
    });
    Ok(shown(if was_there { StatusCode::OK } else { StatusCode::CREATED }, entry.await?))
}

pub(super) async fn remove(
    State(office): State<Office>,
    Path((kind, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let kind = known(&kind)?;
    changed(office, move |office| office.control.delete(kind, &name, &condition(&headers)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a new API key for a tenant. It is shown this once: only its hash is kept.
pub(super) async fn add_key(
    State(office): State<Office>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let tenant = office.decider.policies().tenant(&id).cloned().ok_or(ControlError::Missing)?;
    let api_key =
        random_key().map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no randomness"))?;
    let hashes = tenant.api_keys.iter().copied().chain([ApiKeyHash::of(api_key.as_bytes())]);
    let hashes: Vec<String> = hashes.map(|hash| hash.to_string()).collect();
    let document = json!({"plan": tenant.plan.as_str(), "apiKeys": hashes});
    changed(office, move |office| office.control.put(Kind::Tenants, &id, document, &Condition::Always))
        .await?;
    Ok((StatusCode::CREATED, Json(json!({"apiKey": api_key}))).into_response())
}

fn random_key() -> Result<String, getrandom::Error> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(format!("spile_{}", Hex(&bytes)))
}

/// Changes wait for the disk, and so do not run where requests are answered.
async fn changed<T: Send + 'static>(
    office: Office,
    change: impl FnOnce(Office) -> Result<T, ControlError> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(move || change(office)).await {
        Ok(done) => done.map_err(Problem::from),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

fn known(kind: &str) -> Result<Kind, Problem> {
    Kind::parse(kind).ok_or_else(Problem::no_such_path)
}

/// A document as it may have been read here: what the server adds is taken off again.
fn told(mut document: Map<String, Value>) -> Map<String, Value> {
    for added in ["source", "name", "apiKeyCount"] {
        document.remove(added);
    }
    document
}

/// A tenant keeps its keys unless the document speaks of them: they are not shown, and so cannot be sent back.
fn kept_keys(
    office: &Office,
    kind: Kind,
    name: &str,
    mut document: Map<String, Value>,
) -> Map<String, Value> {
    if kind == Kind::Tenants
        && !document.contains_key("apiKeys")
        && let Some(tenant) = office.decider.policies().tenant(name)
    {
        let hashes: Vec<String> = tenant.api_keys.iter().map(ToString::to_string).collect();
        document.insert("apiKeys".to_owned(), json!(hashes));
    }
    document
}

/// What `If-Match` and `If-None-Match` ask for.
fn condition(headers: &HeaderMap) -> Result<Condition, ControlError> {
    if headers.get(IF_NONE_MATCH).is_some_and(|value| value == "*") {
        return Ok(Condition::Absent);
    }
    match headers.get(IF_MATCH) {
        None => Ok(Condition::Always),
        Some(value) => {
            let tag = value.to_str().map_err(|_| ControlError::Changed)?;
            Ok(Condition::Unchanged(tag.trim_matches('"').to_owned()))
        }
    }
}

fn shown(status: StatusCode, entry: Entry) -> Response {
    let mut response = (status, Json(entry.document)).into_response();
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", entry.tag)) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.into_reply().into_response()
    }
}

impl From<ControlError> for Problem {
    fn from(why: ControlError) -> Self {
        let status = match &why {
            ControlError::Missing => StatusCode::NOT_FOUND,
            ControlError::InFile => StatusCode::CONFLICT,
            ControlError::Changed => StatusCode::PRECONDITION_FAILED,
            ControlError::Wrong(wrong) => {
                let lines: Vec<String> = wrong.lines().collect();
                return Self::new(StatusCode::UNPROCESSABLE_ENTITY, lines.join("; ")).with("errors", lines);
            }
            ControlError::Kept(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, why.to_string())
    }
}

impl From<ControlError> for Fault {
    fn from(why: ControlError) -> Self {
        Self::new("body", why)
    }
}
