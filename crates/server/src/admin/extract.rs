//! Extractors of request parts. A part that is out of bounds becomes a problem that names it.

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::Bytes;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::http::{Problem, read_json};
use crate::input::fault::Fault;

/// The part of the path that names something, decoded.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(name) = Path::from_request_parts(parts, state)
            .await
            .map_err(|_| Fault::new("path", "the name in it is not UTF-8 text, percent-encoded"))?;
        Ok(Self(name))
    }
}

/// The query: the part after the question mark.
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(asked) = Query::from_request_parts(parts, state).await.map_err(|why: QueryRejection| {
            let text = why.body_text();
            Fault::new("query", text.rsplit_once("query string: ").map_or(&*text, |(_, what)| what))
        })?;
        Ok(Self(asked))
    }
}

/// The bytes of a JSON body.
pub(super) struct JsonBody(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = Problem;

    async fn from_request(mut request: Request<Body>, _state: &S) -> Result<Self, Problem> {
        read_json(&mut request).await.map(Self)
    }
}
