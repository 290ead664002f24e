//! Reads the query of a URL.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::DeserializeOwned;

use super::problem;

/// An extractor for the query. Its rejection is a problem document that names the fault.
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let Query(asked) = Query::from_request_parts(parts, state).await.map_err(|why: QueryRejection| {
            let text = why.body_text();
            problem(400, "query", text.rsplit_once("query string: ").map_or(&*text, |(_, what)| what))
        })?;
        Ok(Self(asked))
    }
}
