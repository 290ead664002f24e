//! The clocks of a server: the one that its buckets follow, and the one that people and other machines read.

use std::sync::Arc;

use spile_core::{Clock, Micros, SystemClock};

/// Both clocks.
#[derive(Clone)]
pub(crate) struct Clocks {
    /// The clock of the embedded store.
    pub(crate) buckets: Arc<dyn Clock>,
    /// The clock of `X-RateLimit-Reset` and `resetAt`.
    pub(crate) wall: Arc<dyn Clock>,
    /// True if Redis uses `buckets`, too, instead of its own clock.
    pub(crate) decide_everywhere: bool,
}

impl Clocks {
    /// The machine's clocks.
    pub(crate) fn system() -> Self {
        Self { buckets: Arc::new(SystemClock::new()), wall: Arc::new(WallClock), decide_everywhere: false }
    }

    /// One clock for everything, so that a test can move time.
    pub(crate) fn all(clock: impl Clock + Clone + 'static) -> Self {
        Self { buckets: Arc::new(clock.clone()), wall: Arc::new(clock), decide_everywhere: true }
    }
}

/// The wall clock, steps and all. Buckets must not follow it: a step would mint tokens.
#[derive(Clone, Copy, Debug)]
struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Micros {
        SystemClock::wall_now()
    }
}
