//! Free loopback ports, each for one server of one test.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// Below the range from which the kernel picks ports for outgoing connections. Twice as wide as it looks: a cluster
/// node's bus listens [`BUS_OFFSET`] above.
const FIRST: u16 = 11_000;
const COUNT: u16 = 9_000;

/// The distance from a cluster node's port to the port of its bus, which is Redis's own default.
const BUS_OFFSET: u16 = 10_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// Keeps other processes from using a port that was handed out, for as long as this process lives.
static HELD: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// A port that is this process's from now on, with a free bus port above it.
///
/// It stays bound by a socket that does not listen. A server that sets `SO_REUSEADDR`, as servers do, can listen beside it,
/// and again after a restart; no other test and no outgoing connection gets the port in between.
pub fn free() -> u16 {
    let start = (std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    let tried = |_| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        FIRST + (start + step) % COUNT
    };
    let held = |port: u16| Some((port, [hold(port)?, hold(port + BUS_OFFSET)?]));
    let (port, sockets) = (0..COUNT).map(tried).find_map(held).expect("a free loopback port");
    HELD.lock().extend(sockets);
    port
}

/// Binds the port, which fails where any other socket has it, and then lets a server listen there.
fn hold(port: u16) -> Option<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).ok()?;
    sockopt::set_socket_reuseaddr(&socket, true).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_port_can_be_listened_on_again_and_again_and_is_given_to_no_other() {
        let port = free();
        for _ in 0..2 {
            // The standard library sets SO_REUSEADDR.
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is ours");
            TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        }
        assert!(hold(port).is_none() && hold(port + BUS_OFFSET).is_none());
        assert_ne!(free(), port);
    }
}
