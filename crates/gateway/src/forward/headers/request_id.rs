//! The id by which a request is found in the logs of clients, gateways and upstreams.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use spile_core::PermitId;

pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is accepted from a trusted proxy.
const MAX_BYTES: usize = 128;

/// The id of one request.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// The id that a trusted proxy sent, else a new one. Other peers could send the id of another request.
    pub(crate) fn of(headers: &HeaderMap, trusted: bool) -> Self {
        let given = if trusted { headers.get(&X_REQUEST_ID).filter(|value| is_valid(value)) } else { None };
        given.map_or_else(Self::new, |value| Self(value.clone()))
    }

    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(X_REQUEST_ID, self.0.clone());
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The name under which the request holds permits. A long one is cut.
    pub(crate) fn as_holder(&self) -> &str {
        let name = self.0.to_str().unwrap_or_default();
        &name[..name.len().min(PermitId::MAX_HOLDER_BYTES)]
    }

    fn new() -> Self {
        let mut digits = [b'0'; 32];
        let _fits = hex::encode_to_slice(fastrand::u128(..).to_be_bytes(), &mut digits);
        Self(HeaderValue::from_bytes(&digits).unwrap_or_else(|_| HeaderValue::from_static("0")))
    }
}

fn is_valid(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=MAX_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}
