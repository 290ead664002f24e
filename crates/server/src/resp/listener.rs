//! The Redis protocol on a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use spile_listener::{AcceptedConnection, Bounds, ClientIo, GuessLimiter, ListenerProtocol};

use super::connection::{Connection, Patience};
use super::session::{Presenter, Session};
use crate::config::RespConfig;
use crate::decide::Decider;
use crate::observe::metrics::RpcMetrics;

/// What answers on the `resp` listener.
#[derive(Clone)]
pub(crate) struct Resp(Arc<Shared>);

struct Shared {
    decider: Arc<Decider>,
    metrics: Arc<RpcMetrics>,
    guesses: Arc<GuessLimiter>,
    patience: Patience,
    /// The number of the connection that was opened last.
    last_id: AtomicI64,
}

impl Resp {
    pub(crate) fn new(
        decider: Arc<Decider>,
        metrics: RpcMetrics,
        guesses: Arc<GuessLimiter>,
        bounds: &Bounds,
        config: &RespConfig,
    ) -> Self {
        let patience = Patience {
            idle: config.idle_timeout,
            command: bounds.header_timeout,
            unread: bounds.write_timeout,
        };
        let (metrics, last_id) = (Arc::new(metrics), AtomicI64::new(0));
        Self(Arc::new(Shared { decider, metrics, guesses, patience, last_id }))
    }
}

impl ListenerProtocol for Resp {
    async fn serve<I: ClientIo>(self, accepted: AcceptedConnection<I>) {
        let AcceptedConnection { stream, origin, watcher, permit } = accepted;
        let shared = &*self.0;
        let id = shared.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let presenter = Presenter { address: origin.peer.ip(), guesses: Arc::clone(&shared.guesses) };
        let session = Session::new(presenter, Arc::clone(&shared.decider), Arc::clone(&shared.metrics), id);
        let connection = Connection::new(stream, session, shared.patience);
        // A connection that breaks is its client's affair: there is no one left to tell.
        if let Err(why) = connection.serve(watcher).await
            && why.kind() == std::io::ErrorKind::TimedOut
        {
            permit.timed_out();
        }
    }
}
