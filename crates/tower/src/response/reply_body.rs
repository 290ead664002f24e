//! Bodies that the layer can answer with.

use bytes::Bytes;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Full};

/// A response body that can be made from bytes.
///
/// The layer answers refused requests itself, with the type of body that the service has. Bodies of allowed requests pass
/// through unchanged.
#[diagnostic::on_unimplemented(
    message = "the layer cannot answer with a body of type `{Self}`",
    note = "enable the feature `axum` or `tonic` for their bodies, implement `ReplyBody` for your own, or box \
            the body with tower-http's `MapResponseBodyLayer` below this layer"
)]
pub trait ReplyBody {
    /// The body that consists of these bytes.
    fn from_bytes(bytes: Bytes) -> Self;
}

impl ReplyBody for Bytes {
    fn from_bytes(bytes: Bytes) -> Self {
        bytes
    }
}

impl ReplyBody for String {
    fn from_bytes(bytes: Bytes) -> Self {
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl ReplyBody for Full<Bytes> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(bytes)
    }
}

impl<E: 'static> ReplyBody for BoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes).map_err(|never| match never {}).boxed()
    }
}

impl<E: 'static> ReplyBody for UnsyncBoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
    }
}

#[cfg(feature = "axum")]
impl ReplyBody for axum::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from(bytes)
    }
}

#[cfg(feature = "tonic")]
impl ReplyBody for tonic::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::empty() } else { Self::new(Full::new(bytes)) }
    }
}
