//! Where a request came from, and which proxies are trusted to describe it.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};
use spile_policy::single_value;
use spile_tower::client::{ClientAddress, Forwarding, Networks};

/// The proxies whose headers about clients are trusted.
#[derive(Debug)]
pub(crate) struct TrustedProxies {
    networks: Networks,
    address: ClientAddress,
    principal_header: HeaderName,
}

/// The connection that a request came over, and the client at its other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Downstream {
    /// The other end of the connection.
    pub(crate) peer: IpAddr,
    /// The client: the peer, or the one that trusted proxies name instead.
    pub(crate) client: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub(crate) trusted: bool,
    /// Whether the connection is TLS.
    pub(crate) secure: bool,
}

impl TrustedProxies {
    pub(crate) fn new(networks: Networks, principal_header: HeaderName) -> Self {
        let address = ClientAddress::reported_in(Forwarding::XForwardedFor, networks.clone());
        Self { networks, address, principal_header }
    }

    /// Where a request with these headers came from.
    pub(crate) fn downstream(&self, peer: SocketAddr, secure: bool, headers: &HeaderMap) -> Downstream {
        let peer = peer.ip().to_canonical();
        let client = self.address.seen_by(peer, headers);
        Downstream { peer, client, trusted: self.networks.contain(peer), secure }
    }

    /// The user that a trusted proxy has authenticated. The header is ignored if any other peer sends it.
    pub(crate) fn principal<'h>(&self, downstream: &Downstream, headers: &'h HeaderMap) -> Option<&'h str> {
        if downstream.trusted { single_value(headers, &self.principal_header) } else { None }
    }
}
