//! The addresses that the server answers on.

use std::net::{Ipv4Addr, SocketAddr};

use spile_listener::Bounds;

use super::bounds;
use super::file::{Faults, ListenFile, Spot};

/// The addresses of the listeners.
#[derive(Clone, Debug)]
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
    /// What all but the gateway put up with.
    pub bounds: Bounds,
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (http, admin, bounds) = (loopback(8080), loopback(8081), usual_bounds());
        Self { http, admin, grpc: None, resp: None, gateway: None, bounds }
    }
}

impl Listen {
    pub(super) fn check(file: ListenFile, faults: &mut Faults) -> Self {
        let bounds = bounds::check(usual_bounds(), file.bounds, faults);
        let mut address = |text: Option<Spot<String>>| text.and_then(|text| check_address(&text, faults));
        let usual = Self::default();
        Self {
            http: address(file.http).unwrap_or(usual.http),
            admin: address(file.admin).unwrap_or(usual.admin),
            grpc: address(file.grpc),
            resp: address(file.resp),
            gateway: address(file.gateway),
            bounds,
        }
    }
}

fn check_address(Spot { value, place }: &Spot<String>, faults: &mut Faults) -> Option<SocketAddr> {
    let address = value.parse().ok();
    if address.is_none() {
        faults.add(
            place,
            format_args!("`{value}` is no address"),
            "an address and a port, as in `127.0.0.1:8080`",
        );
    }
    address
}

/// Requests are small here, and so is what of them may wait to be read.
fn usual_bounds() -> Bounds {
    let mut bounds = Bounds::default();
    bounds.stream_window = 64 << 10;
    bounds
}
