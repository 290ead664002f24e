//! The only place that reads time. Everything else is handed a [`Clock`].

mod counter;
mod slewed;
mod system;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use self::slewed::SlewedClock;
pub use self::system::SystemClock;
use crate::Micros;

/// Says what time it is.
pub trait Clock: Send + Sync {
    /// Microseconds since the Unix epoch, as this clock sees it.
    fn now(&self) -> Micros;

    /// The wall time of this moment, which a later process can compare with its own. The same as [`now`](Self::now) for
    /// clocks that tell the wall time.
    fn wall(&self) -> Micros {
        self.now()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Micros {
        (**self).now()
    }

    fn wall(&self) -> Micros {
        (**self).wall()
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the clock")]
fn wall() -> Micros {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros::new(0) + since_epoch
}

/// A clock that moves only when told, for tests, including yours.
///
/// Clones share the time.
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<AtomicU64>);

impl FakeClock {
    /// A clock that stands at `now`.
    pub fn at(now: Micros) -> Self {
        Self(Arc::new(AtomicU64::new(now.get())))
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Steps the clock back, as a bad time server would.
    pub fn step_back(&self, by: Duration) {
        self.set(self.now() - by);
    }

    /// Puts the clock to `now`.
    pub fn set(&self, now: Micros) {
        self.0.store(now.get(), Ordering::SeqCst);
    }
}

impl Default for FakeClock {
    /// A clock that stands at an ordinary moment, a million seconds after the epoch.
    fn default() -> Self {
        Self::at(Micros::from_secs(1_000_000))
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Micros {
        Micros::new(self.0.load(Ordering::SeqCst))
    }
}
