//! The key is what a header says.

use http::header::{HeaderName, InvalidHeaderName};
use http::request::Parts;

use super::{KeyResolver, ResolvedKey};

/// Reads the key from a header. The value is hashed, so that a credential never lies in the store in plain sight.
///
/// A header is what the client chose to send. Where nobody checks it, anybody escapes a limit by sending
/// another value: put this behind whatever authenticates the header, or limit by address as well.
#[derive(Clone, Debug)]
pub struct Header(HeaderName);

impl Header {
    /// Reads the key from the header of that name.
    pub const fn new(name: HeaderName) -> Self {
        Self(name)
    }

    /// Reads the key from the header that `name` spells, in any case.
    pub fn named(name: &str) -> Result<Self, InvalidHeaderName> {
        HeaderName::from_bytes(name.as_bytes()).map(Self::new)
    }

    /// Reads the key from `X-API-Key`.
    pub const fn api_key() -> Self {
        Self::new(HeaderName::from_static("x-api-key"))
    }
}

impl KeyResolver for Header {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        let value = request.headers.get(&self.0).filter(|value| !value.is_empty())?;
        // Bytes that are no text are a key all the same: ignoring them would let their sender go free.
        Some(ResolvedKey::header(self.0.as_str(), value.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn with_api_key(value: &[u8]) -> Parts {
        let mut parts = http::Request::new(()).into_parts().0;
        parts.headers.insert("x-api-key", HeaderValue::from_bytes(value).unwrap());
        parts
    }

    #[test]
    fn the_value_of_a_header_is_never_shown() {
        let key = Header::named("X-Api-Key").unwrap().resolve(&with_api_key(b"k-secret")).unwrap();
        assert!(key.as_str().starts_with("sha256:") && !key.as_str().contains("k-secret"));
    }

    #[test]
    fn an_empty_or_absent_header_is_no_key() {
        assert!(Header::api_key().resolve(&with_api_key(b"")).is_none());
        assert!(Header::api_key().resolve(&http::Request::new(()).into_parts().0).is_none());
    }

    #[test]
    fn bytes_that_are_no_text_are_a_key_of_their_own() {
        let key = |bytes: &[u8]| Header::api_key().resolve(&with_api_key(bytes)).unwrap();
        assert_ne!(key(b"\xff\x80"), key(b"ff80"));
    }
}
