//! The time that people and other machines read.

use spile_core::{Clock, Micros, SystemClock};

/// The wall clock, steps and all: what `X-RateLimit-Reset` and `resetAt` are counted from. Buckets are not; they
/// follow the store's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Micros {
        SystemClock::wall_now()
    }
}
