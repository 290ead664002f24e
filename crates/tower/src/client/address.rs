//! Finds the client's address in a way that a client cannot forge.

use std::net::IpAddr;

use http::HeaderMap;
use http::request::Parts;

use super::networks::Networks;
use super::peer::peer_of;
use super::{forwarded, x_forwarded_for};

/// The header in which the proxies in front of a service report the client's address.
///
/// Only one of them is read. A proxy that writes one passes the other through as the client sent it, so a service that read
/// both would believe its clients.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Forwarding {
    /// `X-Forwarded-For`, as nearly all proxies write it.
    #[default]
    XForwardedFor,
    /// `Forwarded`, as RFC 7239 has it.
    Forwarded,
}

/// Finds the address of the client that sent a request.
#[derive(Clone, Debug, Default)]
pub struct ClientAddress {
    trusted: Networks,
    header: Forwarding,
}

impl ClientAddress {
    /// The address of the connection's peer. Headers are ignored.
    pub fn direct() -> Self {
        Self::default()
    }

    /// The address that these proxies report in `header`.
    pub const fn reported_in(header: Forwarding, proxies: Networks) -> Self {
        Self { trusted: proxies, header }
    }

    /// The client's address. `None` if the server did not provide the peer's address.
    pub fn of(&self, request: &Parts) -> Option<IpAddr> {
        peer_of(request).map(|peer| self.seen_by(peer, &request.headers))
    }

    /// The address of the client behind `peer`: the first from the right that no trusted proxy has.
    ///
    /// If a trusted proxy names no address (`unknown`, an obfuscated name, garbage), it is the address of that proxy itself: no
    /// trusted proxy has confirmed what is further left.
    pub fn seen_by(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.trusted.contain(peer) {
            return peer;
        }
        match self.header {
            Forwarding::XForwardedFor => self.first_untrusted(peer, x_forwarded_for::hops(headers)),
            Forwarding::Forwarded => self.first_untrusted(peer, forwarded::hops(headers)),
        }
    }

    fn first_untrusted(&self, peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut nearest = peer;
        for hop in hops {
            match hop {
                None => break,
                Some(address) if self.trusted.contain(address) => nearest = address,
                Some(address) => return address,
            }
        }
        nearest
    }
}
