//! A cap on requests under way, and a queue before it in which callers take turns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::telemetry::QueueGauges;

/// How many requests each upstream of a route has under way at once, and how many wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Concurrency {
    /// Requests under way at one upstream. Default 100.
    pub per_upstream: usize,
    /// Requests that wait for one upstream; more are refused with 503. Default 1,000.
    pub queue: usize,
    /// How long a request waits for its turn. Default 5 s.
    pub wait: Duration,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { per_upstream: 100, queue: 1_000, wait: Duration::from_secs(5) }
    }
}

/// Lets so many in at once. Those who wait are let in caller by caller, so that a caller with a thousand requests
/// delays one with a single request by one turn only.
#[derive(Debug)]
pub(crate) struct FairQueue {
    settings: Concurrency,
    state: Mutex<State>,
    gauges: QueueGauges,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: usize,
    lines: HashMap<Arc<str>, VecDeque<oneshot::Sender<Permit>>>,
    /// Callers who wait, in the order of their turns.
    turns: VecDeque<Arc<str>>,
}

/// A place at the upstream, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit(Option<Arc<FairQueue>>);

/// There is no place, and none will be free in time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Crowded;

impl FairQueue {
    pub(crate) fn new(settings: Concurrency, gauges: QueueGauges) -> Self {
        let (lines, turns) = (HashMap::default(), VecDeque::new());
        let state = State { free: settings.per_upstream.max(1), waiting: 0, lines, turns };
        Self { settings, state: Mutex::new(state), gauges }
    }

    fn show(&self, state: &State) {
        self.gauges.in_use.set((self.settings.per_upstream.max(1) - state.free) as f64);
        self.gauges.waiting.set(state.waiting as f64);
    }

    /// A place for one request of `caller`, once it is their turn.
    pub(crate) async fn enter(self: &Arc<Self>, caller: &str) -> Result<Permit, Crowded> {
        let turn = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                self.show(&state);
                return Ok(Permit(Some(Arc::clone(self))));
            }
            if state.waiting >= self.settings.queue {
                return Err(Crowded);
            }
            let turn = state.line_up(caller);
            self.show(&state);
            turn
        };
        let leaving = Leaving { queue: self, caller };
        match tokio::time::timeout(self.settings.wait, turn).await {
            Ok(Ok(permit)) => {
                std::mem::forget(leaving);
                Ok(permit)
            }
            _ => Err(Crowded),
        }
    }

    /// Hands a place to whoever's turn it is, or keeps it.
    fn release(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while let Some(next) = state.next() {
            let Err(mut unwanted) = next.send(Permit(Some(Arc::clone(self)))) else {
                self.show(&state);
                return;
            };
            // Whoever waited has gone. The place is handed on, not given back twice.
            unwanted.0 = None;
        }
        state.free += 1;
        self.show(&state);
    }
}

impl State {
    fn line_up(&mut self, caller: &str) -> oneshot::Receiver<Permit> {
        let (sender, turn) = oneshot::channel();
        if let Some(line) = self.lines.get_mut(caller) {
            line.push_back(sender);
        } else {
            let caller: Arc<str> = caller.into();
            self.turns.push_back(Arc::clone(&caller));
            self.lines.insert(caller, VecDeque::from([sender]));
        }
        self.waiting += 1;
        turn
    }

    /// The first in line of the caller whose turn it is.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        let caller = self.turns.pop_front()?;
        let line = self.lines.get_mut(&caller)?;
        let first = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&caller);
        } else {
            self.turns.push_back(caller);
        }
        self.waiting -= usize::from(first.is_some());
        first
    }

    /// Takes those out of a caller's line who no longer wait.
    fn forget_gone(&mut self, caller: &str) {
        let Some(line) = self.lines.get_mut(caller) else { return };
        let before = line.len();
        line.retain(|sender| !sender.is_closed());
        self.waiting -= before - line.len();
        if line.is_empty() {
            self.lines.remove(caller);
            self.turns.retain(|other| **other != *caller);
        }
    }
}

/// Someone who waits. Where they give up or go away, their place in the line goes too.
struct Leaving<'q> {
    queue: &'q FairQueue,
    caller: &'q str,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.forget_gone(self.caller);
        self.queue.show(&state);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(per_upstream: usize, queue: usize) -> Arc<FairQueue> {
        let settings = Concurrency { per_upstream, queue, wait: Duration::from_secs(5) };
        Arc::new(FairQueue::new(settings, QueueGauges::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn callers_take_turns_however_many_requests_one_of_them_has() {
        let queue = queue(1, 100);
        let first = queue.enter("greedy").await.unwrap();
        let order: Arc<Mutex<Vec<&str>>> = Arc::default();
        let mut waiting = Vec::new();
        for caller in ["greedy", "greedy", "greedy", "modest"] {
            let (own, log) = (Arc::clone(&queue), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let _place = own.enter(caller).await.unwrap();
                log.lock().push(caller);
            }));
            while queue.state.lock().waiting < waiting.len() {
                tokio::task::yield_now().await;
            }
        }
        drop(first);
        for task in waiting {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), ["greedy", "modest", "greedy", "greedy"]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_or_in_too_long_a_queue_is_turned_away() {
        let queue = queue(1, 1);
        let _only = queue.enter("a").await.unwrap();
        let (waited, full) = tokio::join!(queue.enter("a"), queue.enter("b"));
        assert!(waited.is_err() && full.is_err());
        assert_eq!(queue.state.lock().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_goes_away_while_waiting_leaves_no_trace() {
        let queue = queue(1, 10);
        let only = queue.enter("a").await.unwrap();
        let gone = tokio::time::timeout(Duration::from_millis(1), queue.enter("b")).await;
        assert!(gone.is_err());
        drop(only);
        let state = queue.state.lock();
        assert_eq!((state.free, state.waiting, state.lines.len(), state.turns.len()), (1, 0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn every_place_comes_back() {
        let queue = queue(2, 10);
        for _ in 0..10 {
            let places = (queue.enter("a").await.unwrap(), queue.enter("b").await.unwrap());
            drop(places);
        }
        assert_eq!(queue.state.lock().free, 2);
    }
}
