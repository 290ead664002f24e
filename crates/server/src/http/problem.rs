//! Problems as in RFC 9457: `application/problem+json`.

use http::header::{ALLOW, CONNECTION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use spile_core::StoreError;
use spile_listener::TooManyGuesses;
use spile_tower::response::UNAVAILABLE;

use super::reply::{HttpReply, reply};
use crate::input::fault::Fault;

const CONTENT_TYPE: &str = "application/problem+json";

/// An error, not a denial: the request was wrong, or the store could not do it.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// Boxed, so that a `Result` with a problem in it stays small.
    headers: Box<HeaderMap>,
    members: Members,
}

/// The members of the document, in the order in which they were added.
#[derive(Debug)]
struct Members(Vec<(&'static str, Value)>);

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let members = vec![
            ("type", json!("about:blank")),
            ("title", json!(status.canonical_reason().unwrap_or("Error"))),
            ("status", json!(status.as_u16())),
            ("detail", json!(detail.into())),
        ];
        Self { status, headers: Box::default(), members: Members(members) }
    }

    /// Sets a member beside the standard ones, or in place of one.
    pub(crate) fn with(mut self, member: &'static str, value: impl Into<Value>) -> Self {
        match self.members.0.iter_mut().find(|(name, _)| *name == member) {
            Some((_, standing)) => *standing = value.into(),
            None => self.members.0.push((member, value.into())),
        }
        self
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(crate) fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "path: nothing is served here; POST /v1/check decides")
    }

    pub(crate) fn no_such_admin_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "path: nothing is served here; /openapi.json lists the paths")
    }

    /// The request's length is ambiguous, so the connection is closed after the answer.
    pub(crate) fn ambiguous_length() -> Self {
        let detail = "framing: the request has both Content-Length and Transfer-Encoding, a Transfer-Encoding that is \
                      not just chunked, or follows one whose end is unclear";
        Self::new(StatusCode::BAD_REQUEST, detail).with_header(CONNECTION, HeaderValue::from_static("close"))
    }

    /// A credential that was not checked, because its address has presented too many wrong ones.
    pub(crate) fn guessing(why: TooManyGuesses) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, why.to_string())
            .with_header(RETRY_AFTER, HeaderValue::from(why.wait_seconds()))
    }

    pub(crate) fn wrong_method(allowed: &'static str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("method: this path takes {allowed}"))
            .with_header(ALLOW, HeaderValue::from_static(allowed))
    }

    /// A method that the path does not take, where the router sets `Allow`.
    pub(crate) fn other_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method: this path takes those that `Allow` names")
    }

    pub(crate) fn store_failed() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE)
            .with_header(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// The store did not answer a refund. Reports whether the refund may have been made.
    pub(crate) fn refund_failed(why: &StoreError) -> Self {
        let given = if why.may_have_run() {
            "Tokens may have been given back: with the same `id` the refund can be sent again"
        } else {
            "Nothing was given back"
        };
        Self::store_failed().with("detail", format!("{UNAVAILABLE}. {given}."))
    }

    /// The store did not answer a late charge. Reports whether it may have been made.
    pub(crate) fn charge_failed(why: &StoreError) -> Self {
        let charged = if why.may_have_run() { "It may have been charged" } else { "Nothing was charged" };
        Self::store_failed().with("detail", format!("{UNAVAILABLE}. {charged}."))
    }

    /// The store did not answer a settlement. It can be sent again in any case.
    pub(crate) fn settle_failed() -> Self {
        let detail = format!("{UNAVAILABLE}. Send it again: it is settled once, however often it is sent.");
        Self::store_failed().with("detail", detail)
    }

    /// A reservation that cannot be settled any more.
    pub(crate) fn reservation_expired() -> Self {
        let detail = "id: the reservation has expired, and stays charged as it was reserved; charge or refund the difference";
        Self::new(StatusCode::GONE, detail).with("field", "id").with("settled", false)
    }

    /// A reservation that the store does not have.
    pub(crate) fn reservation_unknown() -> Self {
        let detail = "id: there is no such reservation: it was not made, its id was changed, or it expired more than an hour ago";
        Self::new(StatusCode::NOT_FOUND, detail).with("field", "id").with("settled", false)
    }

    /// The store did not answer a renewal. It can be sent again in any case.
    pub(crate) fn renew_failed() -> Self {
        let detail = format!("{UNAVAILABLE}. Send it again: the permit is held until its hold time ends.");
        Self::store_failed().with("detail", detail)
    }

    /// The store did not answer a release. It can be sent again in any case.
    pub(crate) fn release_failed() -> Self {
        let detail = format!("{UNAVAILABLE}. Send it again: the permit ends with its hold time otherwise.");
        Self::store_failed().with("detail", detail)
    }

    /// A permit that cannot be renewed, because others may have its place.
    pub(crate) fn not_held() -> Self {
        let detail = "permit: it is not held any more: it was released or reset, or its hold time ended before it was \
                      renewed; acquire another";
        Self::new(StatusCode::GONE, detail).with("field", "permit").with("renewed", false)
    }

    pub(crate) fn into_reply(self) -> HttpReply {
        let body = serde_json::to_vec(&self.members).expect("names and JSON values are JSON");
        reply(self.status, *self.headers, CONTENT_TYPE, body)
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::new(StatusCode::BAD_REQUEST, fault.to_string()).with("field", fault.field())
    }
}
