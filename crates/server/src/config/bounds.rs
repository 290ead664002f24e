//! The bounds of a listener: connections, headers, streams and times.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spile_listener::Bounds;

use super::value::{RequestSpan, Size, mirrors, within};

/// The bounds of a listener, in `[listen]` and `[gateway]`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
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

mirrors! {
    BoundsSpec, Bounds = Bounds::default();
    max_connections: connections, max_header_bytes: header_bytes, max_header_fields: header_fields,
    max_streams: streams, header_timeout: header_timeout, write_timeout: write_timeout,
    handshake_timeout: handshake_timeout, drain_timeout: drain
}
