//! The common parts of answers about registry entries.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses, ToSchema};

use super::headers;

/// An entry and its tag.
pub(crate) struct ShowResponse<T>(PhantomData<T>);

impl<T: ToSchema> IntoResponses for ShowResponse<T> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        [entry::<T>(200, "The entry as it is in force.")].into()
    }
}

/// An entry that was put.
pub(crate) struct PutResponse<T>(PhantomData<T>);

impl<T: ToSchema> IntoResponses for PutResponse<T> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        [
            entry::<T>(200, "The entry is in force in place of the one that had its name."),
            entry::<T>(201, "The entry is new."),
        ]
        .into()
    }
}

/// An entry that was created.
pub(crate) struct CreatedResponse<T>(PhantomData<T>);

impl<T: ToSchema> IntoResponses for CreatedResponse<T> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        [with_entry::<T>(201, "The entry is new.", &["ETag", "Location"])].into()
    }
}

fn entry<T: ToSchema>(status: u16, description: &str) -> (String, RefOr<Response>) {
    with_entry::<T>(status, description, &["ETag"])
}

fn with_entry<T: ToSchema>(status: u16, description: &str, names: &[&str]) -> (String, RefOr<Response>) {
    let content = Content::new(Some(Ref::from_schema_name(T::name())));
    let response = ResponseBuilder::new().description(description).content("application/json", content);
    (status.to_string(), headers::with(response, names).into())
}

/// Preconditions of a change. Without either, the last writer wins.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "conditions are read from the header fields themselves")]
pub(crate) struct Conditions {
    /// `ETag`s, one of which the entry must have; `*` if it must exist.
    #[param(rename = "If-Match", nullable = false, format = "etag")]
    if_match: Option<String>,
    /// `*`: the entry must not exist yet. Not together with `If-Match`.
    #[param(rename = "If-None-Match", nullable = false, inline)]
    if_none_match: Option<Wildcard>,
}

/// The only accepted value: `*`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "conditions are read from the header fields themselves")]
enum Wildcard {
    #[schema(rename = "*")]
    Any,
}

/// Preconditions of a DELETE.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "conditions are read from the header fields themselves")]
pub(crate) struct DeleteConditions {
    /// `ETag`s, one of which the entry must have.
    #[param(rename = "If-Match", nullable = false, format = "etag")]
    if_match: Option<String>,
}
