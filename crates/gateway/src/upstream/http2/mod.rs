//! HTTP/2 to upstreams: connections that carry many requests at once.

mod asking;
mod connection;

pub(crate) use asking::Http2Body;
pub(crate) use connection::{Http2, Http2Stream};
