//! The addresses that the server answers on.

use std::net::{Ipv4Addr, SocketAddr};

/// The addresses of the listeners.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    /// The decision API and the sample endpoint.
    pub http: SocketAddr,
    /// Health and metrics; never the same listener as callers.
    pub admin: SocketAddr,
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { http: loopback(8080), admin: loopback(8081) }
    }
}
