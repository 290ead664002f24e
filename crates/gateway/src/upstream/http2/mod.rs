//! HTTP/2 to upstreams: connections that carry many requests at once.

mod connection;
mod stream;

pub(crate) use connection::{Http2, Http2Stream};
pub(crate) use stream::Http2Body;
