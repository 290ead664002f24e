//! The addresses that the server answers on.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use spile_listener::Bounds;
use spile_policy::HostPattern;

use super::value::Texts;

/// `[listen]`: the addresses of the listeners, and the bounds of all of them but the gateway.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listen {
    /// The decision API and the sample endpoint.
    pub http: SocketAddr,
    /// Health and metrics; never the same listener as callers.
    pub admin: SocketAddr,
    /// Envoy's rate limit service.
    pub grpc: Option<SocketAddr>,
    /// The Redis protocol.
    pub resp: Option<SocketAddr>,
    /// The reverse proxy.
    pub gateway: Option<SocketAddr>,
    /// The names, besides those of loopback, by which `http` and `admin` are asked, and the hosts whose pages may ask them.
    #[serde(with = "Texts", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostPattern>,
    /// The bounds of all listeners but the gateway.
    #[serde(skip, default = "usual_bounds")]
    pub bounds: Bounds,
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            http: loopback(8080),
            admin: loopback(8081),
            grpc: None,
            resp: None,
            gateway: None,
            hosts: Vec::new(),
            bounds: usual_bounds(),
        }
    }
}

/// Requests are small here, and so is the part of them that may wait to be read.
fn usual_bounds() -> Bounds {
    let mut bounds = Bounds::default();
    bounds.stream_window = 64 << 10;
    bounds
}
