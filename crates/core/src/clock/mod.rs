//! The only place that reads the time. Everything else receives a [`Clock`].

mod counter;
mod slewed;
mod system;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use self::slewed::SlewedClock;
pub use self::system::SystemClock;
use crate::Micros;

/// Reports the time.
pub trait Clock: Send + Sync {
    /// Microseconds since the Unix epoch, as this clock sees it.
    fn now(&self) -> Micros;

    /// The wall time of this moment, which a later process can compare with its own. Equal to [`now`](Self::now) for clocks that
    /// follow the wall time.
    fn wall(&self) -> Micros {
        self.now()
    }

    /// The microseconds by which [`wall`](Self::wall) is ahead of [`now`](Self::now), as of at most a second ago. Cheap, so that a store
    /// in memory can ask for every decision. Zero for clocks that show the wall time.
    fn wall_ahead_us(&self) -> i64 {
        0
    }
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Micros {
        (**self).now()
    }

    fn wall(&self) -> Micros {
        (**self).wall()
    }

    fn wall_ahead_us(&self) -> i64 {
        (**self).wall_ahead_us()
    }
}

/// The wall clock, with its steps.
struct Wall;

impl Clock for Wall {
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Micros {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Micros::new(0) + since_epoch
    }
}

/// A clock that moves only when it is set, for tests, including yours.
///
/// Clones share the time.
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<AtomicU64>);

impl FakeClock {
    /// A clock that is stopped at `now`.
    pub fn at(now: Micros) -> Self {
        Self(Arc::new(AtomicU64::new(now.get())))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Steps the clock back, as a bad time server would.
    pub fn step_back(&self, by: Duration) {
        self.set(self.now() - by);
    }

    /// Sets the clock to `now`.
    pub fn set(&self, now: Micros) {
        self.0.store(now.get(), Ordering::SeqCst);
    }
}

impl Default for FakeClock {
    /// A clock that is stopped a million seconds after the epoch.
    fn default() -> Self {
        Self::at(Micros::from_secs(1_000_000))
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Micros {
        Micros::new(self.0.load(Ordering::SeqCst))
    }
}
