//! One Redis node: the queue in front of it, the breaker that guards it and the lanes that serve it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use spile_core::StoreError;
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;

use crate::breaker::Breaker;
use crate::connection::ConnectionError;
use crate::lane::{Lane, LaneSetup};
use crate::pace::Backoff;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::request::Waiting;

/// What callers and lanes share.
pub(crate) struct Node {
    pub(crate) queue: Queue,
    pub(crate) breaker: Breaker,
    /// Lanes that are connected.
    live: AtomicUsize,
    /// Lanes dial one at a time, and share the pauses between failures.
    pub(crate) dialing: Mutex<Backoff>,
    /// Counts the times that somebody said that the node has moved.
    moves: watch::Sender<u64>,
    /// Why the node could not be reached last, until it is.
    trouble: parking_lot::Mutex<Option<String>>,
}

impl Node {
    fn new(lanes: usize, most_waiting: usize) -> Self {
        Self {
            queue: Queue::new(lanes, most_waiting),
            breaker: Breaker::default(),
            live: AtomicUsize::new(0),
            dialing: Mutex::default(),
            moves: watch::Sender::new(0),
            trouble: parking_lot::Mutex::default(),
        }
    }

    /// Why the node cannot be reached, while it cannot.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Lets a request wait for a lane, unless the node is not being asked.
    pub(crate) fn submit(&self, waiting: Waiting) -> Result<(), StoreError> {
        if self.breaker.is_open() {
            return Err(StoreError::BreakerOpen);
        }
        self.queue.push(waiting);
        // The breaker may have opened, and emptied the queue, in between.
        if self.breaker.is_open() {
            self.turn_away();
        }
        Ok(())
    }

    /// Notes that the node did not do its part. After some in a row, whoever waits is turned away.
    pub(crate) fn failed(&self) {
        if self.breaker.fail() {
            self.turn_away();
        }
    }

    /// Notes that the node cannot be reached. With no other lane connected, there is nothing to wait for.
    pub(crate) fn unreachable(&self, why: &ConnectionError) {
        *self.trouble.lock() = Some(why.to_string());
        if self.connections() == 0 && self.breaker.trip() {
            self.turn_away();
        }
    }

    /// Makes every lane drop its connection after what is under way, and find the node again.
    pub(crate) fn look_again(&self) {
        self.moves.send_modify(|moves| *moves += 1);
    }

    pub(crate) fn moves(&self) -> watch::Receiver<u64> {
        self.moves.subscribe()
    }

    /// How many lanes are connected.
    pub(crate) fn connections(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    pub(crate) fn lane_is_up(&self) {
        *self.trouble.lock() = None;
        self.live.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn lane_is_down(&self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
    }

    fn turn_away(&self) {
        for waiting in self.queue.drain() {
            waiting.answer(Err(Refusal::Failed(StoreError::BreakerOpen)));
        }
    }
}

/// A node and the tasks that serve it, which end when this is dropped.
pub(crate) struct ServedNode {
    pub(crate) node: Arc<Node>,
    tasks: Vec<AbortHandle>,
}

impl ServedNode {
    /// Starts `lanes` lanes. Must be called within a tokio runtime.
    pub(crate) fn start(setup: &LaneSetup, lanes: usize, most_waiting: usize) -> Self {
        let node = Arc::new(Node::new(lanes, most_waiting));
        let spawn = |_| tokio::spawn(Lane::new(setup.clone(), node.clone()).run()).abort_handle();
        let tasks = (0..lanes).map(spawn).collect();
        Self { node, tasks }
    }

    /// Ends `task` with the node.
    pub(crate) fn also(&mut self, task: AbortHandle) {
        self.tasks.push(task);
    }
}

impl Drop for ServedNode {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
