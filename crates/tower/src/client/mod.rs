//! The client's address: that of the connection's peer, or the one that trusted proxies report.
//!
//! Headers of an untrusted peer are ignored. A header of trusted proxies is read from the right, and what is left of the first
//! untrusted address is ignored, because the client may have written it.

mod address;
mod forwarded;
mod networks;
mod node;
mod peer;
mod x_forwarded_for;

pub use address::{ClientAddress, Forwarding};
pub use networks::{Networks, NotANetwork};
pub use peer::{PeerAddr, peer_of};
