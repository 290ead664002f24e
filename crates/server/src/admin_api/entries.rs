//! Plans, rules and tenants: listed, shown, put and removed.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::Office;
use crate::control::{Change, Changed, Condition, ControlError, Entry};
use crate::fault::Fault;
use crate::hex::Hex;
use crate::http::Problem;
use crate::registry::{Kind, RegistryError, Which};
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
    let which = Which { kind: known(&kind)?, name };
    let entry = office.control.get(&which).ok_or(ControlError::Missing)?;
    Ok(shown(StatusCode::OK, entry))
}

pub(super) async fn put(
    State(office): State<Office>,
    Path((kind, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let which = Which { kind: known(&kind)?, name };
    let document: Map<String, Value> = parse(&body)?;
    let Changed { entry, is_new } =
        changed(office, which, Change::Put(told(document)), condition(&headers)?).await?;
    let entry = entry.ok_or(ControlError::Missing)?;
    Ok(shown(if is_new { StatusCode::CREATED } else { StatusCode::OK }, entry))
}

pub(super) async fn remove(
    State(office): State<Office>,
    Path((kind, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let which = Which { kind: known(&kind)?, name };
    changed(office, which, Change::Delete, condition(&headers)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a new API key for a tenant. It is shown this once: only its hash is kept.
pub(super) async fn add_key(
    State(office): State<Office>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let api_key =
        random_key().map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no randomness"))?;
    let change = Change::AddKey(ApiKeyHash::of(api_key.as_bytes()));
    changed(office, Which { kind: Kind::Tenants, name: id }, change, Condition::Always).await?;
    Ok((StatusCode::CREATED, Json(json!({"apiKey": api_key}))).into_response())
}

fn random_key() -> Result<String, getrandom::Error> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(format!("spile_{}", Hex(&bytes)))
}

/// In a task of its own, so that a caller who leaves does not end a change half-way.
async fn changed(
    office: Office,
    which: Which,
    change: Change,
    condition: Condition,
) -> Result<Changed, Problem> {
    let changing = tokio::spawn(async move { office.control.change(&which, &change, &condition).await });
    match changing.await {
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
            ControlError::InFile | ControlError::Broken(_) | ControlError::Full => StatusCode::CONFLICT,
            ControlError::Changed => StatusCode::PRECONDITION_FAILED,
            ControlError::Wrong(wrong) => {
                let lines: Vec<String> = wrong.lines().collect();
                return Self::new(StatusCode::UNPROCESSABLE_ENTITY, lines.join("; ")).with("errors", lines);
            }
            ControlError::Registry(RegistryError::File(_)) | ControlError::TwoRegistries => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            ControlError::Registry(_) => {
                return Self::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
                    .with_header(RETRY_AFTER, HeaderValue::from_static("1"));
            }
        };
        Self::new(status, why.to_string())
    }
}

impl From<ControlError> for Fault {
    fn from(why: ControlError) -> Self {
        Self::new("body", why)
    }
}
