//! The addresses that the server answers on.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::duration;
use super::file::{Faults, ListenFile, Spot};

/// The addresses of the listeners.
#[derive(Clone, Copy, Debug)]
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

/// What a listener puts up with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bounds {
    /// Connections that are held at once; more wait in the kernel's queue.
    pub max_connections: usize,
    /// How long a caller may take over its header, which also bounds how long an idle connection is kept.
    pub header_timeout: Duration,
    /// How long requests under way may take once the server is told to stop.
    pub drain_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let half_a_minute = Duration::from_secs(30);
        Self { max_connections: 10_000, header_timeout: half_a_minute, drain_timeout: half_a_minute }
    }
}

impl Bounds {
    /// The most connections that can be asked for: more than any machine has descriptors.
    const MOST: u64 = 10_000_000;

    fn check(file: &ListenFile, faults: &mut Faults) -> Self {
        let usual = Self::default();
        let mut span = |text: &Option<Spot<String>>| {
            text.as_ref().and_then(|text| duration::check(text, duration::REQUEST, faults))
        };
        let header_timeout = span(&file.header_timeout).unwrap_or(usual.header_timeout);
        let drain_timeout = span(&file.drain_timeout).unwrap_or(usual.drain_timeout);
        let max_connections = match &file.max_connections {
            Some(Spot { value: most @ 1..=Self::MOST, .. }) => *most as usize,
            Some(Spot { value, place }) => {
                faults.add(place, format_args!("{value} connections"), format_args!("1 to {}", Self::MOST));
                usual.max_connections
            }
            None => usual.max_connections,
        };
        Self { max_connections, header_timeout, drain_timeout }
    }
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (http, admin, bounds) = (loopback(8080), loopback(8081), Bounds::default());
        Self { http, admin, grpc: None, resp: None, gateway: None, bounds }
    }
}

impl Listen {
    pub(super) fn check(file: ListenFile, faults: &mut Faults) -> Self {
        let bounds = Bounds::check(&file, faults);
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
