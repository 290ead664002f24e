//! Builds a watch, and runs the thread that ticks once a second.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use metrics::Recorder;
use spile_core::{Clock, SystemClock};

use super::Watch;
use crate::metrics::{HealthProbe, Registrar, StoreHealth};

const SECOND: Duration = Duration::from_secs(1);

/// Builds a [`Watch`]. Everything has a default.
#[must_use = "call build()"]
pub struct WatchBuilder {
    pub(crate) registrar: Registrar,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys_shown: bool,
    pub(crate) health_probe: HealthProbe,
    ticking: bool,
}

impl WatchBuilder {
    pub(crate) fn new() -> Self {
        Self {
            registrar: Registrar::default(),
            clock: Arc::new(SystemClock::new()),
            keys_shown: false,
            health_probe: Arc::new(StoreHealth::default),
            ticking: true,
        }
    }

    /// Uses this recorder instead of the global one. Several watches in one process then have separate metrics.
    pub fn recorder(mut self, recorder: Arc<dyn Recorder + Send + Sync>) -> Self {
        self.registrar = Registrar::of(recorder);
        self
    }

    /// Uses this clock for seconds, minutes and events.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Shows keys in plain text instead of hashed: on the dashboard, in events and in webhooks. A key is often a
    /// person's address or an API key.
    pub const fn show_keys(mut self, shown: bool) -> Self {
        self.keys_shown = shown;
        self
    }

    /// Asks the store for its state once a second.
    pub fn health(mut self, ask: impl Fn() -> StoreHealth + Send + Sync + 'static) -> Self {
        self.health_probe = Arc::new(ask);
        self
    }

    /// Starts no thread: the caller ends each second with [`Watch::tick`]. For tests, and for programs with a timer of
    /// their own.
    pub const fn without_ticker(mut self) -> Self {
        self.ticking = false;
        self
    }

    /// The watch.
    pub fn build(self) -> Watch {
        let ticking = self.ticking;
        let watch = Watch::new(self);
        if ticking {
            start_ticker(&watch);
        }
        watch
    }
}

/// Ticks once a second until the last clone of the watch is gone.
fn start_ticker(watch: &Watch) {
    let watch = watch.downgrade();
    let ticking = thread::Builder::new().name("spile-observe".to_owned()).spawn(move || {
        loop {
            // The thread is never unparked; parking is its way to sleep.
            thread::park_timeout(SECOND);
            match watch.upgrade() {
                Some(watch) => watch.tick(),
                None => return,
            }
        }
    });
    // If the thread cannot be spawned the watch still counts, but figures are updated only when they are read.
    drop(ticking);
}
