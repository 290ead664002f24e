//! What all workers of a gateway share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use spile_core::Clock;
use spile_listener::{Bounds, Guesses, Listener, RequestMetrics};
use spile_observe::trace::Tracer;

use crate::gateway::Live;
use crate::limit::Limits;
use crate::upstream::Dialer;

/// The gateway without its connections.
pub(crate) struct Shared<S> {
    pub(crate) live: Live,
    pub(crate) limits: Limits<S>,
    pub(crate) dialer: Dialer,
    pub(crate) bounds: Bounds,
    pub(crate) listener: Listener,
    pub(crate) guesses: Guesses,
    pub(crate) metrics: RequestMetrics,
    pub(crate) clock: Arc<dyn Clock>,
    /// Nothing where nobody wants traces.
    pub(crate) tracer: Option<Tracer>,
    /// Whether some worker checks the upstreams: one is enough.
    pub(crate) checking: AtomicBool,
}

impl<S> Shared<S> {
    /// Reads certificates and keys again where their files have changed.
    pub(crate) fn refresh_files(&self) {
        self.listener.refresh_files();
        let setup = self.live.setup();
        if let Some(jwt) = &setup.auth.jwt {
            jwt.refresh();
        }
        setup.table.refresh_files();
    }
}
