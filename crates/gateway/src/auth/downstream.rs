//! What this hop knows of a request, whatever the request says of itself.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use spile_tower::client::{ClientAddress, Forwarding, Networks};

/// Whose word about clients is taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    networks: Networks,
    address: ClientAddress,
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    /// The other end of the connection.
    pub(crate) peer: IpAddr,
    /// The client itself, as far as trusted proxies vouch for it.
    pub(crate) client: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub(crate) trusted: bool,
    /// Whether the connection is TLS.
    pub(crate) secure: bool,
}

impl Trust {
    pub(crate) fn new(networks: Networks) -> Self {
        let address = ClientAddress::reported_in(Forwarding::XForwardedFor, networks.clone());
        Self { networks, address }
    }

    /// Where a request with these headers came from.
    pub(crate) fn hop(&self, peer: SocketAddr, secure: bool, headers: &HeaderMap) -> Hop {
        let address = peer.ip().to_canonical();
        let client = self.address.seen_by(address, headers);
        Hop { peer: address, client, trusted: self.networks.contain(address), secure }
    }
}
