//! Answers that are problem documents.

use std::collections::BTreeMap;

use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use super::headers;

type Responses = BTreeMap<String, RefOr<Response>>;

/// A problem, as in RFC 9457.
#[derive(ToSchema)]
#[schema(examples(json!({
    "type": "about:blank", "title": "Bad Request", "status": 400, "field": "cost",
    "detail": "cost: cost 11 is above 10, the capacity of limit free: it can never pass"
})))]
#[expect(dead_code, reason = "documents are written member by member, in the order that they are said")]
pub(crate) struct Problem {
    /// The kind of problem; `about:blank` if the status is enough.
    r#type: String,
    /// The kind in words.
    title: String,
    /// The status, once more.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The fault: the field, its value and the accepted values.
    detail: String,
    /// The field that is at fault: `cost`, `[3].cost`, `Content-Type`, `body`.
    #[schema(nullable = false)]
    field: Option<String>,
    /// Every fault, if there are several, each with its place and the accepted values.
    #[schema(nullable = false)]
    errors: Option<Vec<String>>,
}

pub(crate) fn problem(status: u16, description: &str, names: &[&str]) -> (String, RefOr<Response>) {
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    let response =
        ResponseBuilder::new().description(description).content("application/problem+json", content);
    (status.to_string(), headers::with(response, names).into())
}

/// The answer to a method that a path does not take.
pub(crate) fn other_method() -> (String, RefOr<Response>) {
    problem(405, "The path does not take this method.", &["Allow"])
}

/// Defines types that list the answers of an operation.
macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident: $($answer:expr),*;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> Responses {
                [$($answer),*].into()
            }
        }
    )*};
}
pub(super) use answers;

answers! {
    /// Every client may ask, by one method only.
    NoOtherMethod: other_method();
    /// The path takes the token.
    AuthErrors:
        problem(401, "The token is missing or wrong.", &["WWW-Authenticate"]),
        problem(403, "No token is configured, so the path is closed; or a page of another site asks.", &[]),
        other_method();
    /// The store did not answer.
    StoreFailed: problem(503, "The store did not answer.", &["Retry-After"]);
    /// The name in the path cannot be read.
    BadName: problem(400, "The name in the path, the query or a header field is malformed.", &[]);
    /// No entry has the name.
    Missing: problem(404, "Nothing has this name.", &[]);
    /// A document was refused, and nothing has changed.
    PutErrors:
        problem(400, "The body is not such a document: a field is unknown, repeated or of the wrong type.", &[]),
        problem(408, "The body did not arrive within 10 seconds.", &[]),
        problem(412, "The entry was changed since, or its existence contradicts `If-Match` or `If-None-Match`.", &[]),
        problem(413, "The body is larger than 64 KiB.", &[]),
        problem(415, "The body is not `application/json`.", &[]),
        problem(422, "The document conflicts with the rest; `errors` has every fault.", &[]),
        problem(409, "The registry is full, or holds a document that is not an entry.", &[]),
        problem(500, "The registry could not keep it.", &[]),
        problem(503, "The registry in Redis is out of reach.", &[]);
    /// A change was not stored.
    SaveErrors:
        problem(500, "The registry could not keep the change.", &[]),
        problem(503, "The registry in Redis is out of reach.", &[]);
    /// An entry was not deleted.
    DeleteErrors:
        problem(404, "Nothing has this name.", &[]),
        problem(409, "The entry is defined in the file, or others still use it; `errors` names them.", &[]),
        problem(412, "The entry was changed since: see `If-Match`.", &[]),
        problem(500, "The registry could not keep the change.", &[]),
        problem(503, "The registry in Redis is out of reach.", &[]);
}

/// A new entry was refused, and nothing has changed.
pub(crate) struct CreateErrors;

impl IntoResponses for CreateErrors {
    fn responses() -> Responses {
        let mut responses = PutErrors::responses();
        responses.remove("412");
        responses.extend([problem(
            409,
            "The name is taken, or the registry is full or holds a document that is not an entry.",
            &[],
        )]);
        responses
    }
}
