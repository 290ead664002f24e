//! Free loopback ports.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range from which the kernel picks ports for outgoing connections, so that no client of another test
/// takes a port between its being found free and the server's binding it. Twice as wide as it looks: a cluster
/// node's bus listens [`BUS_OFFSET`] above.
const FIRST: u16 = 11_000;
const COUNT: u16 = 9_000;

/// The distance from a cluster node's port to the port of its bus, which is Redis's own default.
const BUS_OFFSET: u16 = 10_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port on which nothing listens, with a free bus port above it.
///
/// Test processes start at different places, so two of them rarely try the same one; a server that loses such a
/// race exits, and is started again on another port.
pub fn free() -> u16 {
    let start = (std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    let tried = |_| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        FIRST + (start + step) % COUNT
    };
    let free = |port: &u16| is_free(*port) && is_free(*port + BUS_OFFSET);
    (0..COUNT).map(tried).find(free).expect("a free loopback port")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
