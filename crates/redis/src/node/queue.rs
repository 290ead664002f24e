//! Requests that wait for a lane, and the schedule by which lanes send them.
//!
//! All waiting requests go in the next flight. If no flight is unanswered, a request is sent at once; otherwise it
//! waits until that flight is answered. With a long round trip that wait would be long too, so the other connections
//! send flights evenly spaced over the round trip, but at least a millisecond apart: close to Redis one lane sends
//! everything, in the largest calls, which cost Redis least. A connection pipelines another flight behind an unanswered
//! one if the flight would be full, or if the round trip leaves too little of the deadline to wait for. Requests past
//! their deadline are not sent.
//!
//! A node that is congested by our own flights gets at most one flight per connection. The backlog waits in this queue,
//! where it is not mistaken for a node that does not answer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use smallvec::SmallVec;
use spile_runtime::Runtime;
use tokio::sync::Notify;

use crate::script::request::PendingRequest;

/// The most charges in one flight, so that one flight blocks Redis for about a millisecond at most. The last request of
/// a flight may exceed it by its own charges.
const MAX_PER_FLIGHT: usize = 128;

/// If this many requests wait, another connection sends a flight at once.
const EARLY_SEND: usize = MAX_PER_FLIGHT / 2;

/// The least time between two flights that are unanswered at once.
const MIN_SPACING: Duration = Duration::from_millis(1);

/// The node counts as congested if flights take longer than the round trip by this, and by half of the round trip.
const CONGESTION: Duration = Duration::from_millis(5);

/// The queue of one node. Several lanes take from it.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    state: Mutex<QueueState>,
    arrived: Notify,
    runtime: Runtime,
    /// The number of lanes.
    lanes: usize,
    /// How long a caller waits for its answer.
    timeout: Duration,
    /// Above this length, requests whose callers are gone are removed.
    max_len: usize,
}

#[derive(Debug)]
struct QueueState {
    waiting: VecDeque<PendingRequest>,
    /// When each unanswered flight was sent.
    in_flight: SmallVec<[Instant; 8]>,
    last_sent: Instant,
    /// How long flights take: a moving average.
    flight_time: Duration,
    /// How long flights take that wait for no other: a moving average of the round trip.
    round_trip: Duration,
}

/// An unanswered flight. Dropping it marks the flight as answered.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    queue: &'a RequestQueue,
    sent_at: Instant,
    /// Whether the flight waited for no other when it was sent.
    is_uncontended: bool,
}

impl RequestQueue {
    pub(crate) fn new(runtime: Runtime, lanes: usize, timeout: Duration, most_waiting: usize) -> Self {
        let state = QueueState {
            waiting: VecDeque::new(),
            in_flight: SmallVec::new(),
            last_sent: runtime.now(),
            flight_time: Duration::ZERO,
            round_trip: Duration::ZERO,
        };
        let (state, arrived) = (Mutex::new(state), Notify::new());
        Self { state, arrived, runtime, lanes, timeout, max_len: 2 * most_waiting }
    }

    /// Adds a request. The number of waiting callers bounds the queue, except for requests whose callers are gone:
    /// those are removed when there are too many.
    pub(crate) fn push(&self, request: PendingRequest) {
        let mut state = self.state.lock();
        if state.waiting.len() >= self.max_len {
            state.waiting.retain(|waiting| !waiting.is_abandoned());
        }
        state.waiting.push_back(request);
        let length = state.waiting.len();
        drop(state);
        // The lane that was woken for the first request takes the others too, so they need not wake it again.
        if length == 1 || length == EARLY_SEND {
            self.arrived.notify_one();
        }
    }

    /// Waits until a flight may be sent, and takes the waiting requests. Cancel safe: no request is lost.
    pub(crate) async fn take(&self) -> (Vec<PendingRequest>, Flight<'_>) {
        loop {
            let arrived = self.arrived.notified();
            match self.try_take(self.runtime.now()) {
                Ok(taken) => return taken,
                Err(None) => arrived.await,
                Err(Some(next_send_at)) => {
                    let sleeping = SleepingLane(self);
                    tokio::select! {
                        biased;
                        () = arrived => {}
                        () = self.runtime.sleep_until(next_send_at) => {}
                    }
                    std::mem::forget(sleeping);
                }
            }
        }
    }

    /// Starts a flight for requests that were taken before and must be sent again with the script's source.
    pub(crate) fn start_flight(&self) -> Flight<'_> {
        let now = self.runtime.now();
        self.state.lock().in_flight.push(now);
        Flight { queue: self, sent_at: now, is_uncontended: false }
    }

    /// Takes all waiting requests, to be answered without a lane.
    pub(crate) fn drain(&self) -> VecDeque<PendingRequest> {
        std::mem::take(&mut self.state.lock().waiting)
    }

    /// The waiting requests. `Err` holds when to try again, or `None` if no request waits.
    fn try_take(&self, now: Instant) -> Result<(Vec<PendingRequest>, Flight<'_>), Option<Instant>> {
        let mut state = self.state.lock();
        let next_send_at = state.next_send_at(now, self.lanes, self.timeout);
        if next_send_at > now && !state.waiting.is_empty() {
            return Err(Some(next_send_at));
        }
        let taken = state.next_batch(now);
        if taken.is_empty() {
            return Err(None);
        }
        let is_uncontended = state.in_flight.len() < self.lanes;
        state.in_flight.push(now);
        state.last_sent = now;
        let more = !state.waiting.is_empty();
        drop(state);
        if more {
            self.arrived.notify_one();
        }
        Ok((taken, Flight { queue: self, sent_at: now, is_uncontended }))
    }
}

/// A lane that waits until it may send. If it is dropped while waiting, another lane is woken in its place.
struct SleepingLane<'a>(&'a RequestQueue);

impl Drop for SleepingLane<'_> {
    fn drop(&mut self) {
        self.0.arrived.notify_one();
    }
}

impl QueueState {
    /// When the next flight may be sent, or when to check again.
    fn next_send_at(&self, now: Instant, lanes: usize, timeout: Duration) -> Instant {
        let (waiting, in_flight) = (self.waiting.len(), self.in_flight.len());
        if in_flight == 0 || (in_flight < lanes && waiting >= EARLY_SEND) {
            return self.last_sent;
        }
        let takes = self.expected(now);
        if in_flight < lanes {
            return self.last_sent + spacing(takes, lanes, timeout);
        }
        // A request that waits for an answer of the flight before it might miss its deadline.
        let is_late = takes > timeout / 3;
        match (is_late, waiting >= MAX_PER_FLIGHT) {
            _ if self.is_congested() => now + MIN_SPACING,
            (true, _) => self.last_sent + spacing(takes, lanes, timeout),
            (false, true) => self.last_sent + MIN_SPACING,
            (false, false) => now + MIN_SPACING,
        }
    }

    /// How long flights take: the moving average, or the age of the oldest unanswered flight if that is more.
    fn expected(&self, now: Instant) -> Duration {
        let oldest = self.in_flight.iter().min().map_or(Duration::ZERO, |sent_at| now - *sent_at);
        self.flight_time.max(oldest)
    }

    fn is_congested(&self) -> bool {
        self.flight_time > self.round_trip + CONGESTION.max(self.round_trip / 2)
    }

    fn flight_ended(&mut self, sent_at: Instant, now: Instant, was_uncontended: bool) {
        let took = now - sent_at;
        if let Some(index) = self.in_flight.iter().position(|flight| *flight == sent_at) {
            self.in_flight.swap_remove(index);
        }
        self.flight_time = (self.flight_time * 7 + took) / 8;
        if was_uncontended {
            self.round_trip = if self.round_trip.is_zero() { took } else { (self.round_trip + took) / 2 };
        }
    }

    /// Takes the requests of one flight. Requests whose callers are gone or whose deadline has passed are dropped.
    fn next_batch(&mut self, now: Instant) -> Vec<PendingRequest> {
        let mut taken = Vec::with_capacity(self.waiting.len().min(MAX_PER_FLIGHT));
        let mut charges = 0;
        while charges < MAX_PER_FLIGHT {
            match self.waiting.pop_front() {
                Some(request) if !request.mark_sent(now) => {}
                Some(request) => {
                    charges += request.request.charges.len().max(1);
                    taken.push(request);
                }
                None => break,
            }
        }
        taken
    }
}

/// The time between two flights. It grows with the round trip, so that flights carry more requests, up to a sixth of
/// what the round trip leaves of the deadline.
fn spacing(takes: Duration, lanes: usize, timeout: Duration) -> Duration {
    let spare = timeout.saturating_sub(takes) / 6;
    let lanes = u32::try_from(lanes).unwrap_or(u32::MAX).max(1);
    (takes / lanes).min(spare).max(MIN_SPACING)
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let now = self.queue.runtime.now();
        self.queue.state.lock().flight_ended(self.sent_at, now, self.is_uncontended);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spile_core::Reply;
    use tokio::sync::oneshot;

    use super::*;
    use crate::script::error_reply::Rejection;
    use crate::script::request::{BatchGroup, Request, ScriptOp};

    const TIMEOUT: Duration = Duration::from_millis(50);

    fn now() -> Instant {
        Runtime::tokio().now()
    }

    fn queue_of(lanes: usize, timeout: Duration, most_waiting: usize) -> RequestQueue {
        RequestQueue::new(Runtime::tokio(), lanes, timeout, most_waiting)
    }

    type ReplyReceiver = oneshot::Receiver<Result<Reply, Rejection>>;

    fn push(queue: &RequestQueue) -> ReplyReceiver {
        push_until(queue, None)
    }

    fn push_until(queue: &RequestQueue, deadline: Option<Instant>) -> ReplyReceiver {
        let (answer, answered) = oneshot::channel();
        let request = Arc::new(Request::new(ScriptOp::Peek, SmallVec::new()));
        queue.push(PendingRequest { request, group: BatchGroup::Any, answer, deadline });
        answered
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_request_goes_at_once_and_what_comes_meanwhile_goes_together() {
        let queue = queue_of(2, TIMEOUT, 100);
        let start = now();
        let _first = push(&queue);
        let (taken, flight) = queue.take().await;
        assert_eq!((taken.len(), now() - start), (1, Duration::ZERO));
        let _rest: Vec<_> = (0..9).map(|_| push(&queue)).collect();
        drop(flight);
        let (taken, _flight) = queue.take().await;
        assert_eq!((taken.len(), now() - start), (9, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_lane_takes_over_when_the_first_is_away_for_long() {
        let queue = queue_of(2, TIMEOUT, 100);
        let start = now();
        let _first = push(&queue);
        let _away = queue.take().await;
        let _second = push(&queue);
        let (taken, _flight) = queue.take().await;
        assert_eq!(taken.len(), 1);
        assert_eq!(now() - start, MIN_SPACING);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_does_not_wait_for_the_first_lane() {
        let queue = queue_of(2, TIMEOUT, 1_000);
        let start = now();
        let _first = push(&queue);
        let _away = queue.take().await;
        let _crowd: Vec<_> = (0..EARLY_SEND).map(|_| push(&queue)).collect();
        let (taken, _flight) = queue.take().await;
        assert_eq!((taken.len(), now() - start), (EARLY_SEND, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_whose_callers_gave_up_are_not_taken() {
        let queue = queue_of(1, TIMEOUT, 100);
        drop(push(&queue));
        let _kept = push(&queue);
        let (taken, _flight) = queue.take().await;
        assert_eq!(taken.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_past_its_deadline() {
        let queue = queue_of(1, TIMEOUT, 100);
        let _late = push_until(&queue, Some(now() + Duration::from_millis(50)));
        tokio::time::advance(Duration::from_millis(50)).await;
        let _in_time = push_until(&queue, Some(now() + Duration::from_millis(50)));
        let (taken, _flight) = queue.take().await;
        assert_eq!(taken.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn flights_over_a_long_way_are_spread_over_the_time_that_they_take() {
        let queue = queue_of(2, TIMEOUT, 1_000);
        let round_trip = Duration::from_millis(40);
        let mut in_flight = VecDeque::new();
        let mut longest = Duration::ZERO;
        for number in 0..1_000 {
            let (pushed, _request) = (now(), push(&queue));
            let flight = loop {
                let landing =
                    in_flight.front().map_or(pushed + round_trip, |(sent_at, _)| *sent_at + round_trip);
                tokio::select! {
                    biased;
                    () = queue.runtime.sleep_until(landing) => drop(in_flight.pop_front()),
                    (_, flight) = queue.take() => break flight,
                }
            };
            // The averages settle over the first flights.
            if number > 10 {
                longest = longest.max(now() - pushed);
            }
            in_flight.push_back((now(), flight));
        }
        assert!(in_flight.len() <= 40, "{} flights are under way", in_flight.len());
        assert!(longest <= Duration::from_millis(7), "a request waited {longest:?} for its flight");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_busy_with_our_flights_is_given_no_more_than_one_per_connection() {
        let queue = queue_of(2, TIMEOUT, 100_000);
        let service = Duration::from_millis(4);
        let _callers: Vec<_> = (0..200 * MAX_PER_FLIGHT).map(|_| push(&queue)).collect();
        let (mut in_flight, mut most) = (VecDeque::new(), 0);
        for flight in 0..200 {
            while let Ok(taken) = queue.try_take(now()) {
                in_flight.push_back(taken);
            }
            tokio::time::advance(service).await;
            in_flight.pop_front();
            // The averages settle over the first flights.
            if flight > 50 {
                most = most.max(in_flight.len() + 1);
            }
        }
        assert!(most <= 3, "{most} flights were under way");
    }

    #[test]
    fn those_who_gave_up_do_not_fill_the_queue() {
        let queue = queue_of(1, TIMEOUT, 10);
        for _ in 0..1_000 {
            drop(push(&queue));
        }
        assert!(queue.drain().len() <= 20);
    }
}
