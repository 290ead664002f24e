//! The client's address, by the rules that keep it the client's.

use std::net::IpAddr;

use http::HeaderMap;
use http::request::Parts;

use super::networks::Networks;
use super::peer::peer_of;
use super::{forwarded, x_forwarded_for};

/// The header in which the proxies in front of a service say whom they speak for.
///
/// It is one or the other, as the proxies are set up. A proxy that writes one passes the other through as the
/// client sent it, so that a service which read both would believe its clients.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Forwarding {
    /// `X-Forwarded-For`, as nearly all proxies write it.
    #[default]
    XForwardedFor,
    /// `Forwarded`, as RFC 7239 has it.
    Forwarded,
}

/// Finds the address of whoever sent a request.
#[derive(Clone, Debug, Default)]
pub struct ClientAddress {
    trusted: Networks,
    header: Forwarding,
}

impl ClientAddress {
    /// The address that the connection comes from, whatever any header says.
    pub fn direct() -> Self {
        Self::default()
    }

    /// The address that these proxies report in `header`.
    pub const fn reported_in(header: Forwarding, proxies: Networks) -> Self {
        Self { trusted: proxies, header }
    }

    /// The client's address, or nothing where the server did not say who the peer is.
    pub fn of(&self, request: &Parts) -> Option<IpAddr> {
        peer_of(request).map(|peer| self.seen_by(peer, &request.headers))
    }

    /// The address of the client behind `peer`: the first from the right that no trusted proxy has.
    ///
    /// Where a trusted proxy names nobody (`unknown`, an obfuscated name, garbage), it is that proxy itself:
    /// what stands further left, nobody vouches for.
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
