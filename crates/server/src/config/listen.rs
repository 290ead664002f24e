//! The addresses that the server answers on.

use std::net::{Ipv4Addr, SocketAddr};

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
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { http: loopback(8080), admin: loopback(8081), grpc: None, resp: None, gateway: None }
    }
}

impl Listen {
    /// The listeners that are configured and that nothing here answers on.
    pub(crate) fn unserved(&self) -> impl Iterator<Item = &'static str> {
        let optional = [("grpc", self.grpc), ("resp", self.resp)];
        optional.into_iter().filter(|(_, address)| address.is_some()).map(|(name, _)| name)
    }

    pub(super) fn check(file: ListenFile, faults: &mut Faults) -> Self {
        let mut address = |text: Option<Spot<String>>| text.and_then(|text| check_address(&text, faults));
        let usual = Self::default();
        Self {
            http: address(file.http).unwrap_or(usual.http),
            admin: address(file.admin).unwrap_or(usual.admin),
            grpc: address(file.grpc),
            resp: address(file.resp),
            gateway: address(file.gateway),
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
