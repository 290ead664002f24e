//! The handlers that plans, rules and tenants share: list, create, show, put and delete. Their paths are in `kinds`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{ETAG, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::AdminState;
use super::audit::Audit;
use super::condition::condition;
use super::extract::JsonBody;
use crate::config::{ConfigError, Faults, Origin, Spec};
use crate::control::{Change, Changed, Condition, ControlError, Entry};
use crate::http::Problem;
use crate::input::fault::Fault;
use crate::input::segment;
use crate::registry::{EntryId, Kind, RegistryError};

pub(super) fn list(state: &AdminState, kind: Kind) -> Response {
    let entries = state.control.list(kind);
    let documents: Vec<Value> = entries.into_iter().map(|entry| entry.document).collect();
    Json(json!({ kind.as_str(): documents })).into_response()
}

pub(super) fn show(state: &AdminState, kind: Kind, name: String) -> Result<Response, Problem> {
    let which = EntryId { kind, name };
    let config = state.control.config();
    match state.control.get(&which) {
        Some(entry) => Ok(shown(StatusCode::OK, entry)),
        None => Err(match config.quarantine().why(&which) {
            // It is not in force, so its fault is shown instead.
            Some(why) => Problem::new(StatusCode::NOT_FOUND, format!("path: this is in quarantine: {why}"))
                .with("field", "path"),
            None => ControlError::Missing.into(),
        }),
    }
}

pub(super) async fn put(
    state: AdminState,
    which: EntryId,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let condition = condition(&headers)?;
    let (name, spec) = read(&which, &body)?;
    if name.is_some_and(|name| name != which.name) {
        let why = "is not the name in the path; leave it out, or write that one";
        return Err(unfit(&Fault::new(which.kind.name_member(), why)));
    }
    let put = state.control.change(&which, &Change::Put(Arc::new(spec)), &condition).await;
    let Changed { entry, is_new } = put.map_err(|why| refused(why, &which))?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(shown(status, entry.ok_or(ControlError::Missing)?))
}

/// Creates an entry under the name in its body, unless the name is taken.
pub(super) async fn create(
    state: AdminState,
    kind: Kind,
    audit: Audit,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let member = kind.name_member();
    let (name, spec) = read(&EntryId { kind, name: String::new() }, &body)?;
    let name = name.ok_or_else(|| unfit(&Fault::new(member, "is missing: the name of the entry")))?;
    audit.name(&*name);
    let which = EntryId { kind, name };
    match state.control.change(&which, &Change::Put(Arc::new(spec)), &Condition::Absent).await {
        Ok(Changed { entry, .. }) => {
            let mut response = shown(StatusCode::CREATED, entry.ok_or(ControlError::Missing)?);
            response.headers_mut().insert(LOCATION, place(&which));
            Ok(response)
        }
        Err(ControlError::Changed) => {
            let detail = format!("{member}: `{}` is taken; PUT changes what has that name", which.name);
            Err(Problem::new(StatusCode::CONFLICT, detail).with("field", member))
        }
        Err(why) => Err(refused(why, &which)),
    }
}

/// Parses a body into an entry and the name that it contains. The error lists every fault.
fn read(which: &EntryId, body: &[u8]) -> Result<(Option<String>, Spec), Problem> {
    let mut faults = Faults::default();
    let read = Spec::read(which, body, &mut faults).map_err(|why| {
        let several = why.starts_with("trailing characters");
        Fault::new("body", if several { "holds more than one JSON value".to_owned() } else { why })
    })?;
    let wrong = || wrong(StatusCode::BAD_REQUEST, own_lines(&faults.into_error(&Origin::default()), which));
    read.ok_or_else(wrong)
}

pub(super) async fn remove(
    state: AdminState,
    kind: Kind,
    name: String,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let condition = condition(&headers)?;
    match state.control.change(&EntryId { kind, name }, &Change::Delete, &condition).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(ControlError::Wrong(users)) => Err(in_use(users.lines().collect())),
        Err(other) => Err(other.into()),
    }
}

/// The URL path of the entry.
fn place(EntryId { kind, name }: &EntryId) -> HeaderValue {
    let path = format!("/admin/v1/{kind}/{}", segment(name));
    HeaderValue::from_str(&path).expect("what is not plain is spelt out")
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
        let (status, field) = match &why {
            ControlError::Missing => (StatusCode::NOT_FOUND, "path"),
            ControlError::InFile | ControlError::Quarantined(_) => (StatusCode::CONFLICT, "path"),
            ControlError::Changed => (StatusCode::PRECONDITION_FAILED, "If-Match"),
            ControlError::TooManyKeys(_) => (StatusCode::CONFLICT, "apiKeys"),
            ControlError::Wrong(wrong) => {
                return self::wrong(StatusCode::UNPROCESSABLE_ENTITY, wrong.lines().collect());
            }
            ControlError::Full => return Self::new(StatusCode::CONFLICT, why.to_string()),
            ControlError::Registry(RegistryError::File(_)) | ControlError::TwoRegistries => {
                return Self::new(StatusCode::INTERNAL_SERVER_ERROR, why.to_string());
            }
            ControlError::Registry(_) => {
                return Self::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
                    .with_header(RETRY_AFTER, HeaderValue::from_static("1"));
            }
        };
        Self::new(status, format!("{field}: {why}")).with("field", field)
    }
}

/// Refuses a document that cannot be stored under the name.
fn unfit(fault: &Fault) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, fault.to_string()).with("field", fault.field())
}

/// Why an entry was not put. Faults are reported in the spelling of the request.
fn refused(why: ControlError, which: &EntryId) -> Problem {
    match why {
        ControlError::Wrong(why) => wrong(StatusCode::UNPROCESSABLE_ENTITY, own_lines(&why, which)),
        other => other.into(),
    }
}

/// Refuses to delete an entry that others use. Lists the faults that its absence would cause.
fn in_use(lines: Vec<String>) -> Problem {
    let detail = format!("path: others still use this; without it {}", lines.join("; "));
    Problem::new(StatusCode::CONFLICT, detail).with("field", "path").with("errors", lines)
}

/// Lists every fault of an entry, each with its place.
fn wrong(status: StatusCode, lines: Vec<String>) -> Problem {
    let problem = Problem::new(status, lines.join("; "));
    let problem = match lines.first().and_then(|first| first.split_once(": ")) {
        Some((field, _)) => problem.with("field", field),
        None => problem,
    };
    problem.with("errors", lines)
}

/// Lists each fault with its place within the entry: `refill`, not `plans/gold.refill`.
fn own_lines(wrong: &ConfigError, which: &EntryId) -> Vec<String> {
    let own = |line: String| match line.strip_prefix(&which.to_string()) {
        Some(rest) if rest.starts_with('.') => rest[1..].to_owned(),
        Some(rest) if rest.starts_with(':') => format!("{}{rest}", which.kind.name_member()),
        _ => line,
    };
    wrong.lines().map(own).collect()
}
