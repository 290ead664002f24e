//! The Redis protocol on a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use spile_listener::{AcceptedConnection, Bounds, ClientIo, GuessLimiter, ListenerProtocol};

use super::connection::{ClientConnection, ClientTimeouts};
use super::session::{ClientSession, RespPeer};
use crate::config::RespConfig;
use crate::decide::Decider;
use crate::observe::metrics::RpcMetrics;

/// Serves the Redis protocol on the connections of the `resp` listener.
#[derive(Clone)]
pub(crate) struct Resp(Arc<Shared>);

struct Shared {
    decider: Arc<Decider>,
    metrics: Arc<RpcMetrics>,
    guesses: Arc<GuessLimiter>,
    timeouts: ClientTimeouts,
    /// The number of the newest connection, for `CLIENT ID`.
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
        let timeouts = ClientTimeouts {
            idle: config.idle_timeout,
            command: bounds.header_timeout,
            unread: bounds.write_timeout,
        };
        let (metrics, last_id) = (Arc::new(metrics), AtomicI64::new(0));
        Self(Arc::new(Shared { decider, metrics, guesses, timeouts, last_id }))
    }
}

impl ListenerProtocol for Resp {
    async fn serve<I: ClientIo>(self, accepted: AcceptedConnection<I>) {
        let AcceptedConnection { stream, origin, watcher, permit } = accepted;
        let shared = &*self.0;
        let id = shared.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (address, guesses) = (origin.peer.ip(), Arc::clone(&shared.guesses));
        let peer = RespPeer { address, hang_up: stream.hang_up(), guesses };
        let session = ClientSession::new(peer, Arc::clone(&shared.decider), Arc::clone(&shared.metrics), id);
        let connection = ClientConnection::new(stream, session, shared.timeouts);
        // Only timeouts are counted. Other errors mean that the client is gone.
        if let Err(why) = connection.serve(watcher).await
            && why.kind() == std::io::ErrorKind::TimedOut
        {
            permit.timed_out();
        }
    }
}
