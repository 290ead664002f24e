//! What a listener puts up with.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spile_listener::Bounds;

use super::value::{RequestSpan, Size, within};

/// The bounds of a listener, in `[listen]` and `[gateway]`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct BoundsSpec {
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    max_connections: usize,
    // hyper reads into a buffer of 8 KiB at least.
    #[serde(with = "Size::<8_192, 1_048_576>")]
    max_header_bytes: usize,
    #[serde(deserialize_with = "within::<10, 1_000, _, _>")]
    max_header_fields: usize,
    #[serde(deserialize_with = "within::<1, 10_000, _, _>")]
    max_streams: u32,
    #[serde(with = "RequestSpan")]
    header_timeout: Duration,
    #[serde(with = "RequestSpan")]
    write_timeout: Duration,
    #[serde(with = "RequestSpan")]
    handshake_timeout: Duration,
    #[serde(with = "RequestSpan")]
    drain_timeout: Duration,
}

impl Default for BoundsSpec {
    fn default() -> Self {
        Self::from(&Bounds::default())
    }
}

impl From<&Bounds> for BoundsSpec {
    fn from(bounds: &Bounds) -> Self {
        Self {
            max_connections: bounds.connections,
            max_header_bytes: bounds.header_bytes,
            max_header_fields: bounds.header_fields,
            max_streams: bounds.streams,
            header_timeout: bounds.header_timeout,
            write_timeout: bounds.write_timeout,
            handshake_timeout: bounds.handshake_timeout,
            drain_timeout: bounds.drain,
        }
    }
}

impl BoundsSpec {
    pub(super) const fn apply(&self, bounds: &mut Bounds) {
        bounds.connections = self.max_connections;
        bounds.header_bytes = self.max_header_bytes;
        bounds.header_fields = self.max_header_fields;
        bounds.streams = self.max_streams;
        bounds.header_timeout = self.header_timeout;
        bounds.write_timeout = self.write_timeout;
        bounds.handshake_timeout = self.handshake_timeout;
        bounds.drain = self.drain_timeout;
    }
}
