//! Why something could not be delivered.

use std::net::IpAddr;

/// An error in the URL of a receiver, or of one delivery.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// The text is not a URL that can be posted to.
    #[error("`{0}` is not a URL to post to: write http://host/path or https://host/path")]
    Url(String),
    /// The host has an address that is not public.
    #[error("the host is at {0}, which is not public; allow private targets, or choose another host")]
    Private(IpAddr),
    /// The host has no address.
    #[error("the host has no address")]
    NoAddress,
    /// The receiver cannot be reached, or it closed the connection.
    #[error("the receiver cannot be reached: {0}")]
    Io(#[from] std::io::Error),
    /// The receiver does not speak HTTP, or it closed the connection.
    #[error("the receiver closed the connection: {0}")]
    Http(#[from] hyper::Error),
    /// The receiver took too long.
    #[error("the receiver did not answer in time")]
    TimedOut,
    /// The receiver redirects. Redirects are not followed, because their target is not checked.
    #[error("the receiver redirects with status {0}, which is not followed; use the final URL")]
    Redirected(u16),
    /// The receiver rejects the request with a status that a retry will not change.
    #[error("the receiver rejects the request with status {0}")]
    Refused(u16),
    /// The receiver fails with a status that may change.
    #[error("the receiver failed with status {0}")]
    Failed(u16),
}

impl DeliveryError {
    /// Whether a retry could succeed.
    pub(crate) const fn is_transient(&self) -> bool {
        matches!(self, Self::NoAddress | Self::Io(_) | Self::Http(_) | Self::TimedOut | Self::Failed(_))
    }
}
