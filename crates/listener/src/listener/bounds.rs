//! The bounds of a listener: every size, count and wait has one.

use std::time::Duration;

/// The resources that a client may use before its request is matched to a route.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Bounds {
    /// Concurrent connections. Further ones wait in the kernel's queue. Default 10,000.
    pub connections: usize,
    /// How long a request's header may take to arrive. Also how long an idle connection is kept. Default 30 s.
    pub header_timeout: Duration,
    /// How long a client may read nothing of what is sent to it. Default 60 s.
    pub write_timeout: Duration,
    /// How long a TLS handshake may take. Default 10 s.
    pub handshake_timeout: Duration,
    /// Bytes of one request's header. Default 64 KiB.
    pub header_bytes: usize,
    /// Fields in one request's header. Default 100.
    pub header_fields: usize,
    /// Bytes of path and query. Default 8 KiB.
    pub uri_bytes: usize,
    /// Concurrent requests on one HTTP/2 connection. Default 200.
    pub streams: u32,
    /// The HTTP/2 flow-control window of one stream, for clients and upstreams: how many bytes of a body may arrive
    /// before they are read. Default 512 KiB.
    pub stream_window: u32,
    /// How long open requests may take after the listener is asked to stop. Default 30 s.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            header_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            header_bytes: 64 * 1024,
            header_fields: 100,
            uri_bytes: 8 * 1024,
            streams: 200,
            stream_window: 512 * 1024,
            drain: Duration::from_secs(30),
        }
    }
}
