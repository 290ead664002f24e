//! Requests that wait for a connection to be free. Everything that has gathered goes in the next call, with no timer.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::request::Waiting;

/// The most requests that one flight takes, so that one flight never holds Redis for more than a millisecond or so.
pub(crate) const MOST_PER_FLIGHT: usize = 128;

/// A queue with several takers.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<Waiting>>,
    arrived: Notify,
}

impl Queue {
    /// Lets a request wait its turn. The number of callers bounds the queue, but for those who gave up: they are
    /// swept out when the queue has doubled.
    pub(crate) fn push(&self, request: Waiting, most: usize) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= 2 * most {
            waiting.retain(|waiting| !waiting.is_abandoned());
        }
        waiting.push_back(request);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for requests and takes what has gathered. May be dropped at any time: nothing is lost.
    pub(crate) async fn take(&self) -> Vec<Waiting> {
        loop {
            let arrived = self.arrived.notified();
            let taken = self.take_now();
            if !taken.is_empty() {
                return taken;
            }
            arrived.await;
        }
    }

    /// Everything that waits, for somebody who will answer it in another way.
    pub(crate) fn drain(&self) -> VecDeque<Waiting> {
        std::mem::take(&mut *self.waiting.lock())
    }

    fn take_now(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock();
        let mut taken = Vec::with_capacity(waiting.len().min(MOST_PER_FLIGHT));
        while taken.len() < MOST_PER_FLIGHT {
            match waiting.pop_front() {
                Some(request) if request.is_abandoned() => {}
                Some(request) => taken.push(request),
                None => break,
            }
        }
        let more = !waiting.is_empty();
        drop(waiting);
        if more {
            // Another lane may be idle, and what it was woken for has just been taken.
            self.arrived.notify_one();
        }
        taken
    }
}
