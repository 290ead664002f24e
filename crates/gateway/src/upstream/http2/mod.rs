//! HTTP/2 with upstreams: connections that carry many requests at once.

mod connection;
mod stream;

pub(crate) use connection::{Http2Connection, Http2Stream};
pub(crate) use stream::Http2Body;
