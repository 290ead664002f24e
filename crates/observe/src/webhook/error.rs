//! Why an event could not be told.

use std::net::IpAddr;

/// What is wrong with a webhook, or with one delivery.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// The text is no URL that can be posted to.
    #[error("`{0}` is no webhook URL: write http://host/path or https://host/path")]
    Url(String),
    /// The host is on an address inside some network.
    #[error("webhook host is at {0}, which is not public; allow private targets, or choose another host")]
    Private(IpAddr),
    /// The host has no address.
    #[error("webhook host has no address")]
    NoAddress,
    /// The receiver could not be reached or broke off.
    #[error("webhook receiver cannot be reached: {0}")]
    Io(#[from] std::io::Error),
    /// The receiver does not speak HTTP, or broke off.
    #[error("webhook receiver broke off: {0}")]
    Http(#[from] hyper::Error),
    /// The receiver took too long.
    #[error("webhook receiver gave no answer in time")]
    TimedOut,
    /// The receiver sends elsewhere. Where to was not checked, so nobody goes there.
    #[error("webhook receiver redirects ({0}), which is not followed; use the final URL")]
    Redirected(u16),
    /// The receiver refuses for good.
    #[error("webhook receiver refuses with status {0}")]
    Refused(u16),
    /// The receiver is in trouble.
    #[error("webhook receiver failed with status {0}")]
    Failed(u16),
}

impl WebhookError {
    /// Whether trying again later could help.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::NoAddress | Self::Io(_) | Self::Http(_) | Self::TimedOut | Self::Failed(_))
    }
}
