//! Accepts clients and serves each until told to stop, then lets what is under way finish.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::connection::{Connection, Patience};
use super::session::Session;
use crate::config::{Bounds, RespConfig};
use crate::decider::Decider;
use crate::metrics::RpcMetrics;
use crate::serve::{ACCEPT_PAUSE, accept, told_to};

/// What answers on the `resp` listener.
pub(crate) struct Resp {
    decider: Arc<Decider>,
    metrics: Arc<RpcMetrics>,
    bounds: Bounds,
    patience: Patience,
    room: Arc<Semaphore>,
    /// The number of the connection that was opened last.
    last_id: AtomicI64,
}

impl Resp {
    pub(crate) fn new(
        decider: Arc<Decider>,
        metrics: RpcMetrics,
        bounds: Bounds,
        config: &RespConfig,
    ) -> Self {
        let patience = Patience { idle: config.idle_timeout, command: bounds.header_timeout };
        let (metrics, room) = (Arc::new(metrics), Arc::new(Semaphore::new(bounds.max_connections)));
        Self { decider, metrics, bounds, patience, room, last_id: AtomicI64::new(0) }
    }

    /// Serves until `stop` says so.
    pub(crate) async fn serve(self, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                () = told_to(&mut stop) => break,
                accepted = accept(&listener, &self.room) => match accepted {
                    Ok((stream, _, permit)) => {
                        let connection = Connection::new(stream, self.session(), self.patience);
                        let stop = stop.clone();
                        tokio::spawn(async move {
                            // A connection that breaks is its client's affair: there is nobody left to tell.
                            let _ended = connection.serve(stop).await;
                            drop(permit);
                        });
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        drop(listener);
        self.drain().await;
    }

    fn session(&self) -> Session {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        Session::new(Arc::clone(&self.decider), Arc::clone(&self.metrics), id)
    }

    /// All of the room is free once the last connection is gone. Whoever has not finished by then is cut off.
    async fn drain(&self) {
        let all = u32::try_from(self.bounds.max_connections).unwrap_or(u32::MAX);
        let _in_time = tokio::time::timeout(self.bounds.drain_timeout, self.room.acquire_many(all)).await;
    }
}
