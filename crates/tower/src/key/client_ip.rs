//! The key is the client's address.

use std::net::IpAddr;

use http::request::Parts;

use super::{KeyResolver, ResolvedKey};
use crate::client::{ClientAddress, Forwarding, Networks};

/// Reads the key from the client's address: `ip:203.0.113.7`, `ip:2001:db8:1:2::/64`.
///
/// IPv6 counts by network, by default /64, because a client that has one address of a network has all of them.
#[derive(Clone, Debug)]
pub struct ClientIp {
    address: ClientAddress,
    ipv6_prefix: u8,
}

impl ClientIp {
    /// The address of the connection's peer. Headers are ignored.
    pub fn direct() -> Self {
        Self::of(ClientAddress::direct())
    }

    /// The address that these proxies report in `X-Forwarded-For`.
    pub fn behind(proxies: Networks) -> Self {
        Self::reported_in(Forwarding::XForwardedFor, proxies)
    }

    /// The address that these proxies report in the header that they write.
    pub fn reported_in(header: Forwarding, proxies: Networks) -> Self {
        Self::of(ClientAddress::reported_in(header, proxies))
    }

    /// Counts IPv6 by networks of this prefix; 128 counts each address.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits.min(128);
        self
    }

    /// The key of that address.
    pub fn key_of(&self, address: IpAddr) -> ResolvedKey {
        ResolvedKey::address(address, self.ipv6_prefix)
    }

    fn of(address: ClientAddress) -> Self {
        Self { address, ipv6_prefix: 64 }
    }
}

impl KeyResolver for ClientIp {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        self.address.of(request).map(|address| self.key_of(address))
    }

    fn needs_peer(&self) -> bool {
        true
    }
}
