//! How a watch is put together.

use std::sync::Arc;

use metrics::Recorder;
use spile_core::{Clock, SystemClock};

use crate::health::{AskHealth, StoreHealth};
use crate::registrar::Registrar;
use crate::ticker;
use crate::watch::Watch;

/// How a [`Watch`] is put together. Everything has a default.
#[must_use = "call build()"]
pub struct WatchBuilder {
    pub(crate) registrar: Registrar,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) names_shown: bool,
    pub(crate) ask_health: AskHealth,
    ticking: bool,
}

impl WatchBuilder {
    pub(crate) fn new() -> Self {
        Self {
            registrar: Registrar::default(),
            clock: Arc::new(SystemClock::new()),
            names_shown: false,
            ask_health: Arc::new(StoreHealth::default),
            ticking: true,
        }
    }

    /// Counts in `recorder`, not in the process's. Several watches in one process then do not count for each
    /// other.
    pub fn recorder(mut self, recorder: Arc<dyn Recorder + Send + Sync>) -> Self {
        self.registrar = Registrar::of(recorder);
        self
    }

    /// Tells the time of seconds, minutes and events by `clock`.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Shows keys as they are, not hashed: on the dashboard, in events and to webhooks. Keys are often somebody's
    /// address or API key.
    pub const fn show_names(mut self, shown: bool) -> Self {
        self.names_shown = shown;
        self
    }

    /// Asks the store how it stands, once a second.
    pub fn health(mut self, ask: impl Fn() -> StoreHealth + Send + Sync + 'static) -> Self {
        self.ask_health = Arc::new(ask);
        self
    }

    /// Starts no thread: seconds end when [`Watch::tick`] is called. For tests, and for those who have a timer.
    pub const fn without_ticker(mut self) -> Self {
        self.ticking = false;
        self
    }

    /// The watch.
    pub fn build(self) -> Watch {
        let ticking = self.ticking;
        let watch = Watch::new(self);
        if ticking {
            ticker::start(&watch);
        }
        watch
    }
}
