//! The key is the client's address.

use std::net::IpAddr;

use http::request::Parts;

use super::{KeyResolver, ResolvedKey};
use crate::client::{ClientAddress, Forwarding, Networks};

/// Reads the key from the client's address: `ip:203.0.113.7`, `ip:2001:db8:1:2::/64`.
///
/// IPv6 counts by network, by default /64: whoever has one address there has all of them.
#[derive(Clone, Debug)]
pub struct ClientIp {
    address: ClientAddress,
    ipv6_prefix: u8,
}

impl ClientIp {
    /// The address that the connection comes from, whatever any header says.
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
        match address.to_canonical() {
            IpAddr::V4(address) => ResolvedKey::of_ipv4(address),
            IpAddr::V6(address) => {
                let bits = u32::from(self.ipv6_prefix);
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                let network = std::net::Ipv6Addr::from_bits(address.to_bits() & mask);
                ResolvedKey::format(format_args!("ip:{network}/{bits}"))
            }
        }
    }

    fn of(address: ClientAddress) -> Self {
        Self { address, ipv6_prefix: 64 }
    }
}

impl KeyResolver for ClientIp {
    fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        self.address.of(request).map(|address| self.key_of(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: &str, prefix: u8) -> String {
        let resolver = ClientIp::direct().ipv6_prefix(prefix);
        resolver.key_of(address.parse().unwrap()).as_str().to_owned()
    }

    #[test]
    fn ipv6_counts_by_its_network() {
        assert_eq!(key("2001:db8:1:2:3:4:5:6", 64), "ip:2001:db8:1:2::/64");
        assert_eq!(key("2001:db8:1:2:3:4:5:6", 56), "ip:2001:db8:1::/56");
        assert_eq!(key("2001:db8:1:2:3:4:5:6", 128), "ip:2001:db8:1:2:3:4:5:6/128");
        assert_eq!(key("2001:db8::1", 0), "ip:::/0");
        assert_eq!(key("2001:db8::1", 200), "ip:2001:db8::1/128");
    }

    #[test]
    fn an_ipv4_address_is_the_same_key_when_it_comes_mapped() {
        assert_eq!(key("203.0.113.7", 64), "ip:203.0.113.7");
        assert_eq!(key("::ffff:203.0.113.7", 64), "ip:203.0.113.7");
    }
}
