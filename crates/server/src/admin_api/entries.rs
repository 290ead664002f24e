//! What plans, rules and tenants have in common: listed, made, shown, put and removed.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{ETAG, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::Office;
use super::condition::condition;
use super::extract::JsonBody;
use crate::audit::Audit;
use crate::config::ConfigError;
use crate::control::{Change, Changed, Condition, ControlError, Entry};
use crate::document::Document;
use crate::fault::Fault;
use crate::http::Problem;
use crate::registry::{Kind, RegistryError, Which};
use crate::segment::segment;
use crate::typed::{Object, parse};

pub(super) fn list(office: &Office, kind: Kind) -> Response {
    let entries = office.control.list(kind);
    let documents: Vec<Value> = entries.into_iter().map(|entry| entry.document).collect();
    Json(json!({ kind.as_str(): documents })).into_response()
}

pub(super) fn show(office: &Office, kind: Kind, name: String) -> Result<Response, Problem> {
    let which = Which { kind, name };
    let config = office.control.config();
    match office.control.get(&which) {
        Some(entry) => Ok(shown(StatusCode::OK, entry)),
        None => Err(match config.quarantine().why(&which) {
            // It is not in force, so nothing is shown; what is wrong with it is said.
            Some(why) => Problem::new(StatusCode::NOT_FOUND, format!("path: this is in quarantine: {why}"))
                .with("field", "path"),
            None => ControlError::Missing.into(),
        }),
    }
}

pub(super) async fn put<D: Document>(
    office: Office,
    name: String,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let condition = condition(&headers)?;
    let Object(document) = parse::<Object<D>>(&body)?;
    let kept = document.kept_as(&name).map_err(|fault| unfit(&fault))?;
    let which = Which { kind: D::KIND, name: name.clone() };
    let put = office.control.change(&which, &Change::Put(kept), &condition).await;
    let Changed { entry, is_new } = put.map_err(|why| refused::<D>(why, &name))?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(shown(status, entry.ok_or(ControlError::Missing)?))
}

/// Makes an entry under the name that it brings along, unless the name is taken.
pub(super) async fn create<D: Document>(
    office: Office,
    audit: Audit,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let Object(document) = parse::<Object<D>>(&body)?;
    let name = document.name().map(str::to_owned).ok_or_else(|| {
        let bound = D::bound_of(D::NAME).unwrap_or_default();
        unfit(&Fault::new(D::NAME, format_args!("is missing: {bound}")))
    })?;
    let kept = document.kept_as(&name).map_err(|fault| unfit(&fault))?;
    let which = Which { kind: D::KIND, name: name.clone() };
    audit.name(&*name);
    match office.control.change(&which, &Change::Put(kept), &Condition::Absent).await {
        Ok(Changed { entry, .. }) => {
            let mut response = shown(StatusCode::CREATED, entry.ok_or(ControlError::Missing)?);
            response.headers_mut().insert(LOCATION, place(D::KIND, &name));
            Ok(response)
        }
        Err(ControlError::Changed) => {
            let detail = format!("{}: `{name}` is taken; PUT changes what has that name", D::NAME);
            Err(Problem::new(StatusCode::CONFLICT, detail).with("field", D::NAME))
        }
        Err(why) => Err(refused::<D>(why, &name)),
    }
}

pub(super) async fn remove(
    office: Office,
    kind: Kind,
    name: String,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let condition = condition(&headers)?;
    match office.control.change(&Which { kind, name }, &Change::Delete, &condition).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(ControlError::Wrong(users)) => Err(in_use(users.lines().collect())),
        Err(other) => Err(other.into()),
    }
}

/// Where the entry of this name is.
fn place(kind: Kind, name: &str) -> HeaderValue {
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
            ControlError::Wrong(wrong) => return unworkable(wrong.lines().collect()),
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

/// A document that cannot be kept under the name.
fn unfit(fault: &Fault) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, fault.to_string()).with("field", fault.field())
}

/// Why an entry was not put. What is wrong with it is said in its sender's words.
fn refused<D: Document>(why: ControlError, name: &str) -> Problem {
    match why {
        ControlError::Wrong(wrong) => unworkable(own_lines(&wrong, &format!("{}/{name}", D::KIND), D::NAME)),
        other => other.into(),
    }
}

/// What cannot go because others use it: what would be wrong without it.
fn in_use(lines: Vec<String>) -> Problem {
    let detail = format!("path: others still use this; without it {}", lines.join("; "));
    Problem::new(StatusCode::CONFLICT, detail).with("field", "path").with("errors", lines)
}

/// A document that does not go with the rest: everything that is wrong, each with its place.
fn unworkable(lines: Vec<String>) -> Problem {
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, lines.join("; "));
    let problem = match lines.first().and_then(|first| first.split_once(": ")) {
        Some((field, _)) => problem.with("field", field),
        None => problem,
    };
    problem.with("errors", lines)
}

/// What is wrong, with the places in the entry itself as its sender knows them: `refill`, not `plans/gold.refill`.
fn own_lines(wrong: &ConfigError, place: &str, name: &str) -> Vec<String> {
    let own = |line: String| match line.strip_prefix(place) {
        Some(rest) if rest.starts_with('.') => rest[1..].to_owned(),
        Some(rest) if rest.starts_with(':') => format!("{name}{rest}"),
        _ => line,
    };
    wrong.lines().map(own).collect()
}
