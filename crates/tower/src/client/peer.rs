//! The address at the other end of the connection, as the server left it in the request's extensions.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

/// The address at the other end of the connection. Servers other than axum's and tonic's put it into the
/// extensions of each request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PeerAddr(pub SocketAddr);

/// The address at the other end of the connection. `None` if the server did not provide it.
///
/// Looks for a [`PeerAddr`]; with the feature `axum` for a `ConnectInfo<SocketAddr>`, with the feature `tonic`
/// for a `TcpConnectInfo`.
pub fn peer_of(request: &Parts) -> Option<IpAddr> {
    let own = request.extensions.get::<PeerAddr>().map(|peer| peer.0);
    let peer = own.or_else(|| axum_peer(request)).or_else(|| tonic_peer(request))?;
    Some(peer.ip().to_canonical())
}

#[cfg(feature = "axum")]
fn axum_peer(request: &Parts) -> Option<SocketAddr> {
    request.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>().map(|info| info.0)
}

#[cfg(not(feature = "axum"))]
const fn axum_peer(_request: &Parts) -> Option<SocketAddr> {
    None
}

#[cfg(feature = "tonic")]
fn tonic_peer(request: &Parts) -> Option<SocketAddr> {
    request.extensions.get::<tonic::transport::server::TcpConnectInfo>()?.remote_addr()
}

#[cfg(not(feature = "tonic"))]
const fn tonic_peer(_request: &Parts) -> Option<SocketAddr> {
    None
}
