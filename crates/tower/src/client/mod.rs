//! Where a request comes from: the connection's peer, or whom trusted proxies say they speak for.
//!
//! What an untrusted peer writes is never believed, and of what a trusted chain of proxies wrote only its own
//! part is: the header is read from the right, and everything left of the first untrusted address is whatever the
//! client made up.

mod address;
mod forwarded;
mod networks;
mod node;
mod peer;
mod x_forwarded_for;

pub use address::{ClientAddress, Forwarding};
pub use networks::{Networks, NotANetwork};
pub use peer::{PeerAddr, peer_of};
