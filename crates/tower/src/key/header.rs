//! The key is the value of a header.

use http::header::{HeaderName, InvalidHeaderName};
use http::request::Parts;

use super::{KeyResolver, ResolvedKey};

/// Reads the key from a header. The value is hashed, so that the store never holds a credential in plain text.
///
/// The client chooses what it sends. If the header is not authenticated, a client escapes its limit by sending another value:
/// put the layer behind authentication, or limit by address as well.
#[derive(Clone, Debug)]
pub struct HeaderKey(HeaderName);

impl HeaderKey {
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

impl KeyResolver for HeaderKey {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        let value = request.headers.get(&self.0).filter(|value| !value.is_empty())?;
        // Bytes that are not text are a key too. Otherwise their sender would not be limited.
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
        let key = HeaderKey::named("X-Api-Key").unwrap().resolve(&with_api_key(b"k-secret")).unwrap();
        assert!(key.as_str().starts_with("sha256:") && !key.as_str().contains("k-secret"));
    }

    #[test]
    fn an_empty_or_absent_header_is_no_key() {
        assert!(HeaderKey::api_key().resolve(&with_api_key(b"")).is_none());
        assert!(HeaderKey::api_key().resolve(&http::Request::new(()).into_parts().0).is_none());
    }

    #[test]
    fn bytes_that_are_no_text_are_a_key_of_their_own() {
        let key = |bytes: &[u8]| HeaderKey::api_key().resolve(&with_api_key(bytes)).unwrap();
        assert_ne!(key(b"\xff\x80"), key(b"ff80"));
    }
}
