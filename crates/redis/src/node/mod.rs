//! One Redis node: its request queue, its circuit breaker and its lanes.

pub(crate) mod breaker;
pub(crate) mod lane;
mod pipeline;
pub(crate) mod probe;
pub(crate) mod queue;
pub(crate) mod write_failures;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use spile_core::StoreError;
use spile_runtime::{BoxFuture, SharedTasks};
use tokio::sync::{Mutex, watch};

use crate::connection::ConnectionError;
use crate::connection::dial_limiter::Backoff;
use crate::connection::dialer::{Dialer, NodeAddress};
use crate::connection::endpoint::Endpoint;
use crate::node::breaker::Breaker;
use crate::node::lane::Lane;
use crate::node::probe::Probe;
use crate::node::queue::RequestQueue;
use crate::node::write_failures::WriteFailures;
use crate::script::error_reply::Rejection;
use crate::script::request::PendingRequest;
use crate::store::context::StoreContext;
use crate::store::stats::Counter;

/// The state that callers and lanes share.
pub(crate) struct Node {
    pub(crate) context: Arc<StoreContext>,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) address: NodeAddress,
    /// True if the node belongs to a cluster, in which all keys of a call have the same slot.
    pub(crate) in_cluster: bool,
    /// The lanes, and with Sentinel the subscriptions to changes of master.
    tasks: SharedTasks,
    pub(crate) queue: RequestQueue,
    pub(crate) breaker: Breaker,
    /// Requests that timed out since the start.
    pub(crate) late: Counter,
    /// The number of connected lanes.
    live: AtomicUsize,
    /// Serializes dials, and makes lanes share the backoff after failures.
    pub(crate) dialing: Mutex<Backoff>,
    /// The address that the node last moved to.
    moves: watch::Sender<Option<Endpoint>>,
    /// Why the last dial failed. `None` once a lane is connected.
    trouble: parking_lot::Mutex<Option<String>>,
    /// Set if the URL of the store leads to a wrong kind of node.
    misdirected: OnceLock<String>,
    /// The slot of the probe. `None` outside a cluster.
    probe_slot: parking_lot::Mutex<Option<u16>>,
    pub(crate) write_failures: WriteFailures,
}

impl Node {
    fn new(dialer: Arc<Dialer>, address: NodeAddress, in_cluster: bool) -> Self {
        let context = Arc::clone(&dialer.context);
        let StoreContext { runtime, connections, timeout, max_waiting, .. } = &*context;
        Self {
            queue: RequestQueue::new(runtime.clone(), *connections, *timeout, *max_waiting),
            context,
            dialer,
            address,
            in_cluster,
            tasks: SharedTasks::default(),
            breaker: Breaker::default(),
            late: Counter::default(),
            live: AtomicUsize::new(0),
            dialing: Mutex::default(),
            moves: watch::Sender::new(None),
            trouble: parking_lot::Mutex::default(),
            misdirected: OnceLock::new(),
            write_failures: WriteFailures::default(),
            probe_slot: parking_lot::Mutex::default(),
        }
    }

    /// Sets the slot of the probe, which the node must serve.
    pub(crate) fn serves(&self, slot: u16) {
        *self.probe_slot.lock() = Some(slot);
    }

    /// The request that probes whether the node can decide.
    pub(crate) fn probe(&self) -> Probe {
        Probe::new(&self.context.prefix, *self.probe_slot.lock())
    }

    /// Why the node is lost: it cannot be reached, does not answer or refuses to write. `None` while it decides.
    pub(crate) fn trouble(&self) -> Option<String> {
        // A failed dial does no harm while other lanes are connected.
        let unreachable = self.trouble.lock().clone().filter(|_| self.connections() == 0);
        let silent = || {
            let why = || format!("the last {} requests got no answer in time", Breaker::FAILURES);
            self.breaker.is_open().then(why)
        };
        unreachable
            .or_else(|| self.misdirected.get().cloned())
            .or_else(|| self.write_failures.trouble())
            .or_else(silent)
    }

    /// Starts the node's tasks again, on the current runtime, if theirs has ended.
    #[inline]
    fn keep_served(self: &Arc<Self>) {
        if self.tasks.have_ended() {
            self.restart();
        }
    }

    #[cold]
    fn restart(self: &Arc<Self>) {
        // The old tasks can no longer close the breaker, or notice that the node accepts writes again.
        self.breaker.close();
        self.write_failures.clear();
        self.context.limiter.forgive();
        self.start();
    }

    /// Starts the node's tasks on the current runtime.
    fn start(self: &Arc<Self>) {
        let tasks = || {
            let lane = |_| -> BoxFuture<()> { Box::pin(Lane::new(Arc::clone(self)).run()) };
            let mut tasks: Vec<_> = (0..self.context.connections).map(lane).collect();
            if let NodeAddress::BySentinels(sentinels) = &self.address {
                let watch = |index| -> BoxFuture<()> {
                    Box::pin(Arc::clone(sentinels).watch(index, Arc::clone(self)))
                };
                tasks.extend((0..sentinels.count()).map(watch));
            }
            tasks
        };
        let node = Arc::downgrade(self);
        self.tasks.start(&self.context.runtime, tasks, move || {
            // Waiting callers resubmit their requests, because their runtimes still run.
            if let Some(node) = node.upgrade() {
                node.turn_away(&Rejection::Retry);
            }
        });
    }

    /// Queues a request, unless the breaker is open.
    pub(crate) fn submit(self: &Arc<Self>, waiting: PendingRequest) -> Result<(), StoreError> {
        self.keep_served();
        if self.breaker.is_open() {
            return Err(StoreError::BreakerOpen);
        }
        self.queue.push(waiting);
        // The runtime of the lanes may have ended before the push.
        self.keep_served();
        // The breaker may have opened and drained the queue before the push.
        if self.breaker.is_open() {
            self.turn_away(&StoreError::BreakerOpen.into());
        }
        Ok(())
    }

    /// Counts failed requests. If that opens the breaker, all waiting requests fail.
    pub(crate) fn failed(&self, requests: usize) {
        self.late.add(requests as u64);
        if self.breaker.fail(u32::try_from(requests).unwrap_or(u32::MAX)) {
            self.turn_away(&StoreError::BreakerOpen.into());
        }
    }

    /// Records that a dial failed. If no lane is connected, the breaker opens.
    pub(crate) fn unreachable(&self, why: &ConnectionError) {
        *self.trouble.lock() = Some(why.to_string());
        if self.connections() == 0 && self.breaker.trip() {
            self.turn_away(&StoreError::BreakerOpen.into());
        }
    }

    /// Records that the URL leads to the wrong kind of node. Only another URL helps.
    pub(crate) fn misdirected(&self, why: String) {
        let _known = self.misdirected.set(why);
    }

    /// Makes every lane that is connected to another address finish its flights and connect again.
    pub(crate) fn moved(&self, to: Endpoint) {
        self.moves.send_if_modified(|known| {
            let is_news = known.as_ref() != Some(&to);
            *known = Some(to);
            is_news
        });
    }

    /// Subscribes to the moves from now on.
    pub(crate) fn moves(&self) -> Moves {
        Moves(self.moves.subscribe())
    }

    /// How many lanes are connected.
    pub(crate) fn connections(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    /// Counts a lane as connected until the guard is dropped.
    pub(crate) fn lane_is_up(&self) -> ConnectedGuard<'_> {
        *self.trouble.lock() = None;
        self.live.fetch_add(1, Ordering::AcqRel);
        ConnectedGuard(self)
    }

    fn turn_away(&self, why: &Rejection) {
        for waiting in self.queue.drain() {
            waiting.answer(Err(why.clone()));
        }
    }
}

/// A connected lane. Also dropped if the lane's task is aborted.
pub(crate) struct ConnectedGuard<'a>(&'a Node);

impl Drop for ConnectedGuard<'_> {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The moves of a node since the subscription.
pub(crate) struct Moves(watch::Receiver<Option<Endpoint>>);

impl Moves {
    /// Waits until the node moves to another address than `here`. Cancel safe.
    pub(crate) async fn away_from(&mut self, here: &Endpoint) {
        while self.0.changed().await.is_ok() {
            if self.lead_away_from(here) {
                return;
            }
        }
    }

    /// Whether the last known address differs from `here`.
    pub(crate) fn lead_away_from(&self, here: &Endpoint) -> bool {
        self.0.borrow().as_ref().is_some_and(|to| to != here)
    }

    /// Waits until the node moves. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        // Cannot fail: the node, which has the sender, outlives its lanes.
        let _moved = self.0.changed().await;
    }
}

/// A node and its tasks, which are aborted when this is dropped.
pub(crate) struct ServedNode {
    pub(crate) node: Arc<Node>,
}

impl ServedNode {
    /// Starts the node's tasks on the current runtime.
    pub(crate) fn start(dialer: &Arc<Dialer>, address: NodeAddress, in_cluster: bool) -> Self {
        let node = Arc::new(Node::new(Arc::clone(dialer), address, in_cluster));
        node.start();
        Self { node }
    }
}

impl Drop for ServedNode {
    fn drop(&mut self) {
        self.node.tasks.stop();
    }
}
