//! Whose clock the buckets go by.

use std::fmt;
use std::sync::Arc;

use spile_core::Clock;

/// Whose clock the buckets go by.
#[derive(Clone, Default)]
pub enum TimeSource {
    /// The Redis server's, so that the clock skew of callers does not matter.
    #[default]
    Server,
    /// The caller's, for services that refuse `TIME` in scripts, and for tests. The clocks of all callers should agree:
    /// a clock that is ahead refills early. A [`SlewedClock`](spile_core::SlewedClock) follows the wall clock.
    Client(Arc<dyn Clock>),
}

impl TimeSource {
    /// The caller's clock.
    pub fn client(clock: impl Clock + 'static) -> Self {
        Self::Client(Arc::new(clock))
    }

    /// The time for the script in microseconds; zero if it is to ask the server.
    pub(crate) fn now_us(&self) -> u64 {
        match self {
            Self::Server => 0,
            Self::Client(clock) => clock.now().get().max(1),
        }
    }
}

impl fmt::Debug for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "Server",
            Self::Client(_) => "Client",
        })
    }
}
