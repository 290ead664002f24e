//! Bodies that the layer can answer with, and that hold a permit until they end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Full};
use spile_limiter::Permit;

use super::HoldingBody;

/// A response body that can be made from bytes, and that can hold a permit.
///
/// The layer answers refused requests itself, with the type of body that the service has. Bodies of allowed requests pass
/// through unchanged, unless a limit of the request is a concurrency.
#[diagnostic::on_unimplemented(
    message = "the layer cannot answer with a body of type `{Self}`",
    note = "enable the feature `axum` or `tonic` for their bodies, implement `ReplyBody` for your own, or box \
            the body with tower-http's `MapResponseBodyLayer` below this layer"
)]
pub trait ReplyBody {
    /// The body that consists of these bytes.
    fn from_bytes(bytes: Bytes) -> Self;

    /// Returns the body, which holds the permit until it ends, fails or is dropped. A type that can be made from any body wraps
    /// itself in a [`HoldingBody`](crate::response::HoldingBody). One that is whole in memory may drop the permit: the service has
    /// done its work.
    #[must_use]
    fn holding(self, permit: Arc<Permit>) -> Self;
}

impl ReplyBody for Bytes {
    fn from_bytes(bytes: Bytes) -> Self {
        bytes
    }

    /// Holds it until the last piece of these bytes is dropped, which is when the server has sent them.
    fn holding(self, permit: Arc<Permit>) -> Self {
        if self.is_empty() { self } else { Self::from_owner(HoldingBytes { bytes: self, _permit: permit }) }
    }
}

impl ReplyBody for String {
    fn from_bytes(bytes: Bytes) -> Self {
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Nothing can be tied to a text, so the permit ends here.
    fn holding(self, _permit: Arc<Permit>) -> Self {
        self
    }
}

impl ReplyBody for Full<Bytes> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(bytes)
    }

    /// Holds it as its bytes do.
    fn holding(mut self, permit: Arc<Permit>) -> Self {
        let frame = Pin::new(&mut self).poll_frame(&mut Context::from_waker(Waker::noop()));
        match frame {
            Poll::Ready(Some(Ok(frame))) => Self::new(frame.into_data().unwrap_or_default().holding(permit)),
            _ => self,
        }
    }
}

impl<E: 'static> ReplyBody for BoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes).map_err(|never| match never {}).boxed()
    }

    fn holding(self, permit: Arc<Permit>) -> Self {
        HoldingBody::new(self, permit).boxed()
    }
}

impl<E: 'static> ReplyBody for UnsyncBoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
    }

    fn holding(self, permit: Arc<Permit>) -> Self {
        HoldingBody::new(self, permit).boxed_unsync()
    }
}

#[cfg(feature = "axum")]
impl ReplyBody for axum::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from(bytes)
    }

    fn holding(self, permit: Arc<Permit>) -> Self {
        Self::new(HoldingBody::new(self, permit))
    }
}

#[cfg(feature = "tonic")]
impl ReplyBody for tonic::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::empty() } else { Self::new(Full::new(bytes)) }
    }

    fn holding(self, permit: Arc<Permit>) -> Self {
        Self::new(HoldingBody::new(self, permit))
    }
}

/// Bytes that hold a permit.
struct HoldingBytes {
    bytes: Bytes,
    _permit: Arc<Permit>,
}

impl AsRef<[u8]> for HoldingBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
