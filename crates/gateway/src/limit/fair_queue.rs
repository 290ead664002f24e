//! A cap on the requests in flight at an upstream, with a queue that is fair to callers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::caller_key::CallerKey;
use crate::gateway::metrics::QueueGauges;

/// How many requests of a route each upstream has in flight, and how many wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RouteConcurrency {
    /// Requests in flight at one upstream. Default 100.
    pub per_upstream: usize,
    /// Requests in flight of one tenant, principal or address. `None`, the default, is half of `per_upstream`, rounded
    /// up.
    pub per_caller: Option<usize>,
    /// Requests that wait for one upstream; more are refused with 503. Default 1,000.
    pub queue: usize,
    /// How long a request waits for its turn. Default 5 s.
    pub wait: Duration,
}

impl RouteConcurrency {
    /// The number of permits that one caller may hold at an upstream.
    pub fn places_per_caller(&self) -> usize {
        self.per_caller.unwrap_or_else(|| self.per_upstream.div_ceil(2)).max(1)
    }
}

impl Default for RouteConcurrency {
    fn default() -> Self {
        Self { per_upstream: 100, per_caller: None, queue: 1_000, wait: Duration::from_secs(5) }
    }
}

/// The permits of one upstream. Callers take turns: a caller with a thousand waiting requests delays a caller with a
/// single one by one turn only. No caller holds more than its share of permits.
#[derive(Debug)]
pub(crate) struct FairQueue {
    settings: RouteConcurrency,
    state: Mutex<FairQueueState>,
    gauges: QueueGauges,
}

/// The state of a queue. If a permit is free, all callers that wait already hold as many as they may.
#[derive(Debug, Default)]
struct FairQueueState {
    free: usize,
    waiting: usize,
    held: HashMap<CallerKey, usize>,
    queues: HashMap<CallerKey, CallerQueue>,
    /// Callers with waiting requests, in the order of their turns.
    turns: BTreeMap<Ticket, CallerKey>,
    /// The last ticket that was drawn.
    last_ticket: Ticket,
}

/// Tickets order the waiting requests, so that one that leaves is found without a scan.
type Ticket = u64;

/// The waiting requests of one caller.
#[derive(Debug)]
struct CallerQueue {
    /// The key of the caller in `turns`.
    turn: Ticket,
    waiters: BTreeMap<Ticket, Waiter>,
}

/// A request that waits, maybe for other upstreams too. It takes the first permit from any of them.
#[derive(Debug)]
struct Waiter {
    /// The index of this upstream among those that the request waits for.
    index: usize,
    slot: Arc<PermitSlot>,
}

/// Takes the permit of a waiting request. `None` once the request has one.
type PermitSlot = Mutex<Option<oneshot::Sender<(usize, UpstreamPermit)>>>;

/// A request in flight at the upstream. The permit is returned when dropped.
#[derive(Debug)]
pub(crate) struct UpstreamPermit(Option<(Arc<FairQueue>, CallerKey)>);

/// All queues are full, or the request has waited too long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NoPermit;

/// The result of entering a queue.
enum Enqueued {
    Granted(UpstreamPermit),
    Queued(Ticket),
    Full,
}

/// A permit for a request of `caller` at the first of these upstreams that has one, and the index of the upstream.
pub(crate) async fn acquire_any(
    queues: &[(usize, &Arc<FairQueue>)],
    caller: &CallerKey,
) -> Result<(usize, UpstreamPermit), NoPermit> {
    for (index, queue) in queues {
        if let Some(permit) = queue.try_acquire(caller) {
            return Ok((*index, permit));
        }
    }
    // Boxed, so that the futures of requests that need not wait stay small.
    Box::pin(wait_for_any(queues, caller)).await
}

async fn wait_for_any(
    queues: &[(usize, &Arc<FairQueue>)],
    caller: &CallerKey,
) -> Result<(usize, UpstreamPermit), NoPermit> {
    let mut request = QueuedRequest { caller, queues: Vec::new() };
    let (sender, receiver) = oneshot::channel();
    let slot = Arc::new(Mutex::new(Some(sender)));
    let mut wait = Duration::ZERO;
    for &(index, queue) in queues {
        match queue.enqueue(caller, Waiter { index, slot: Arc::clone(&slot) }) {
            // The permit was returned since the first try. Dropping `request` leaves the queues entered before.
            Enqueued::Granted(permit) => return Ok((index, permit)),
            Enqueued::Queued(ticket) => {
                request.queues.push((index, queue, ticket));
                wait = wait.max(queue.settings.wait);
            }
            Enqueued::Full => {}
        }
    }
    if request.queues.is_empty() {
        return Err(NoPermit);
    }
    // Only the queues hold the slot now: if all of them evict the request, the wait below ends.
    drop(slot);
    let (index, permit) =
        tokio::time::timeout(wait, receiver).await.ok().and_then(Result::ok).ok_or(NoPermit)?;
    // The queue that granted the permit has already removed the request.
    request.queues.retain(|(other, ..)| *other != index);
    Ok((index, permit))
}

/// The queues that a request waits in. It leaves them when this is dropped.
struct QueuedRequest<'q> {
    caller: &'q CallerKey,
    queues: Vec<(usize, &'q Arc<FairQueue>, Ticket)>,
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        for (_, queue, ticket) in &self.queues {
            let mut state = queue.state.lock();
            state.remove(self.caller, *ticket);
            queue.update_gauges(&state);
        }
    }
}

impl FairQueue {
    pub(crate) fn new(settings: RouteConcurrency, gauges: QueueGauges) -> Self {
        let state = FairQueueState { free: settings.per_upstream.max(1), ..FairQueueState::default() };
        Self { settings, state: Mutex::new(state), gauges }
    }

    fn update_gauges(&self, state: &FairQueueState) {
        self.gauges.in_use.set((self.settings.per_upstream.max(1) - state.free) as f64);
        self.gauges.waiting.set(state.waiting as f64);
    }

    /// A permit, if there is one for this caller.
    fn try_acquire(self: &Arc<Self>, caller: &CallerKey) -> Option<UpstreamPermit> {
        let mut state = self.state.lock();
        self.grant(&mut state, caller)
    }

    /// A permit, or else a place in the queue.
    fn enqueue(self: &Arc<Self>, caller: &CallerKey, waiter: Waiter) -> Enqueued {
        let mut state = self.state.lock();
        if let Some(permit) = self.grant(&mut state, caller) {
            return Enqueued::Granted(permit);
        }
        if state.waiting >= self.settings.queue && !state.evict_longest(caller) {
            return Enqueued::Full;
        }
        let ticket = state.enqueue(caller, waiter);
        self.update_gauges(&state);
        Enqueued::Queued(ticket)
    }

    fn grant(self: &Arc<Self>, state: &mut FairQueueState, caller: &CallerKey) -> Option<UpstreamPermit> {
        if state.free == 0 || state.held_by(caller) >= self.settings.places_per_caller() {
            return None;
        }
        state.free -= 1;
        *state.held.entry(caller.clone()).or_default() += 1;
        self.update_gauges(state);
        Some(UpstreamPermit(Some((Arc::clone(self), caller.clone()))))
    }

    /// Gives a returned permit to the next waiting request, if there is one.
    fn release(self: &Arc<Self>, from: &CallerKey) {
        let mut state = self.state.lock();
        state.return_permit(from);
        while let Some((caller, waiter)) = state.next_waiter(self.settings.places_per_caller()) {
            let Some(sender) = waiter.slot.lock().take() else { continue };
            let permit = UpstreamPermit(Some((Arc::clone(self), caller.clone())));
            let Err((_, mut unwanted)) = sender.send((waiter.index, permit)) else {
                state.free -= 1;
                *state.held.entry(caller).or_default() += 1;
                break;
            };
            // The request no longer waits. Its permit was never counted, so it must not be returned.
            unwanted.0 = None;
        }
        self.update_gauges(&state);
    }
}

impl FairQueueState {
    fn held_by(&self, caller: &CallerKey) -> usize {
        self.held.get(caller).copied().unwrap_or(0)
    }

    fn return_permit(&mut self, caller: &CallerKey) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(caller) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(caller);
            }
        }
    }

    const fn draw_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.last_ticket
    }

    fn enqueue(&mut self, caller: &CallerKey, waiter: Waiter) -> Ticket {
        let ticket = self.draw_ticket();
        if let Some(queue) = self.queues.get_mut(caller) {
            queue.waiters.insert(ticket, waiter);
        } else {
            self.turns.insert(ticket, caller.clone());
            let queue = CallerQueue { turn: ticket, waiters: BTreeMap::from([(ticket, waiter)]) };
            self.queues.insert(caller.clone(), queue);
        }
        self.waiting += 1;
        ticket
    }

    /// The first request of the caller whose turn it is. Callers that hold as many permits as they may are skipped.
    fn next_waiter(&mut self, per_caller: usize) -> Option<(CallerKey, Waiter)> {
        let (&turn, _) = self.turns.iter().find(|(_, caller)| self.held_by(caller) < per_caller)?;
        let (later, caller) = (self.draw_ticket(), self.turns.remove(&turn)?);
        let queue = self.queues.get_mut(&caller)?;
        let (_, first) = queue.waiters.pop_first()?;
        if queue.waiters.is_empty() {
            self.queues.remove(&caller);
        } else {
            queue.turn = later;
            self.turns.insert(later, caller.clone());
        }
        self.waiting -= 1;
        Some((caller, first))
    }

    /// Evicts the last request of the longest queue, if the queue of `caller` is shorter. A caller with many requests
    /// must not use up the space of the others.
    fn evict_longest(&mut self, caller: &CallerKey) -> bool {
        let own = self.queues.get(caller).map_or(0, |queue| queue.waiters.len());
        let Some((longest, queue)) = self.queues.iter().max_by_key(|(_, queue)| queue.waiters.len()) else {
            return false;
        };
        let Some((&last, _)) = queue.waiters.last_key_value().filter(|_| queue.waiters.len() > own + 1)
        else {
            return false;
        };
        let longest = longest.clone();
        self.remove(&longest, last);
        true
    }

    fn remove(&mut self, caller: &CallerKey, ticket: Ticket) {
        let Some(queue) = self.queues.get_mut(caller) else { return };
        if queue.waiters.remove(&ticket).is_none() {
            return;
        }
        self.waiting -= 1;
        if queue.waiters.is_empty() {
            self.turns.remove(&queue.turn);
            self.queues.remove(caller);
        }
    }
}

impl Drop for UpstreamPermit {
    fn drop(&mut self) {
        if let Some((queue, caller)) = self.0.take() {
            queue.release(&caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(per_upstream: usize, queue: usize) -> Arc<FairQueue> {
        let settings = RouteConcurrency {
            per_upstream,
            queue,
            per_caller: Some(per_upstream),
            ..RouteConcurrency::default()
        };
        Arc::new(FairQueue::new(settings, QueueGauges::noop()))
    }

    fn caller(name: &str) -> CallerKey {
        CallerKey::Tenant(name.into())
    }

    async fn acquire(queue: &Arc<FairQueue>, name: &str) -> Result<UpstreamPermit, NoPermit> {
        acquire_any(&[(0, queue)], &caller(name)).await.map(|(_, permit)| permit)
    }

    async fn until_waiting(queue: &FairQueue, count: usize) {
        while queue.state.lock().waiting != count {
            tokio::task::yield_now().await;
        }
    }

    fn is_empty(queue: &FairQueue, free: usize) -> bool {
        let state = queue.state.lock();
        let no_callers = state.held.is_empty() && state.queues.is_empty() && state.turns.is_empty();
        no_callers && (state.free, state.waiting) == (free, 0)
    }

    #[tokio::test(start_paused = true)]
    async fn callers_take_turns_however_many_requests_one_of_them_has() {
        let queue = queue(1, 100);
        let first = acquire(&queue, "greedy").await.unwrap();
        let order: Arc<Mutex<Vec<&str>>> = Arc::default();
        let mut waiting = Vec::new();
        for caller in ["greedy", "greedy", "greedy", "modest"] {
            let (own, log) = (Arc::clone(&queue), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let _place = acquire(&own, caller).await.unwrap();
                log.lock().push(caller);
            }));
            until_waiting(&queue, waiting.len()).await;
        }
        drop(first);
        for task in waiting {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), ["greedy", "modest", "greedy", "greedy"]);
        assert!(is_empty(&queue, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_turns_away_those_of_the_caller_with_most() {
        let queue = queue(1, 4);
        let first = acquire(&queue, "greedy").await.unwrap();
        let mut greedy = Vec::new();
        for _ in 0..4 {
            let own = Arc::clone(&queue);
            greedy.push(tokio::spawn(async move { acquire(&own, "greedy").await.map(drop) }));
            until_waiting(&queue, greedy.len()).await;
        }
        assert!(acquire(&queue, "greedy").await.is_err(), "the queue is full for who fills it");
        let own = Arc::clone(&queue);
        let modest = tokio::spawn(async move { acquire(&own, "modest").await.map(drop) });
        let last = greedy.pop().unwrap();
        assert_eq!(last.await.unwrap(), Err(NoPermit), "the last of the longest queue makes room");
        drop(first);
        assert_eq!(modest.await.unwrap(), Ok(()));
        for one in greedy {
            assert_eq!(one.await.unwrap(), Ok(()));
        }
        assert!(is_empty(&queue, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_or_in_too_long_a_queue_is_turned_away() {
        let queue = queue(1, 1);
        let _only = acquire(&queue, "a").await.unwrap();
        let (waited, full) = tokio::join!(acquire(&queue, "a"), acquire(&queue, "b"));
        assert!(waited.is_err() && full.is_err());
        assert_eq!(queue.state.lock().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_goes_away_while_it_waits_leaves_no_trace() {
        let queue = queue(1, 10);
        let only = acquire(&queue, "a").await.unwrap();
        let gone = tokio::time::timeout(Duration::from_millis(1), acquire(&queue, "b")).await;
        assert!(gone.is_err());
        drop(only);
        assert!(is_empty(&queue, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_leaves_the_middle_of_the_line_keeps_the_order_of_the_others() {
        let queue = queue(1, 10);
        let first = acquire(&queue, "a").await.unwrap();
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let mut waiting = Vec::new();
        for place in 0..5 {
            let (own, log) = (Arc::clone(&queue), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let _place = acquire(&own, "a").await.unwrap();
                log.lock().push(place);
            }));
            until_waiting(&queue, waiting.len()).await;
        }
        for (left, place) in [0, 2].into_iter().enumerate() {
            waiting[place].abort();
            until_waiting(&queue, 4 - left).await;
        }
        drop(first);
        for task in waiting {
            let _aborted = task.await;
        }
        assert_eq!(*order.lock(), [1, 3, 4]);
        assert!(is_empty(&queue, 1));
    }

    /// If each request that leaves scanned all others, this would take minutes instead of a second.
    #[test]
    fn a_long_queue_empties_without_a_look_at_all_who_wait() {
        const MANY: usize = 100_000;
        let leave_one_by_one = || {
            let (queue, slot) = (queue(1, 2 * MANY), Arc::<PermitSlot>::default());
            let mut state = queue.state.lock();
            let callers: Vec<_> = (0..MANY).map(|name| caller(&name.to_string())).collect();
            let callers: Vec<_> = callers.into_iter().chain((0..MANY).map(|_| caller("greedy"))).collect();
            let enqueue = |caller| state.enqueue(caller, Waiter { index: 0, slot: Arc::clone(&slot) });
            let tickets: Vec<_> = callers.iter().map(enqueue).collect();
            for (caller, ticket) in callers.iter().zip(tickets).rev() {
                state.remove(caller, ticket);
            }
            drop(state);
            is_empty(&queue, 1)
        };
        let (done, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(leave_one_by_one()));
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
    }

    #[tokio::test(start_paused = true)]
    async fn every_place_comes_back() {
        let queue = queue(2, 10);
        for _ in 0..10 {
            let places = (acquire(&queue, "a").await.unwrap(), acquire(&queue, "b").await.unwrap());
            drop(places);
        }
        assert!(is_empty(&queue, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_holds_half_of_the_places_unless_told_otherwise() {
        for (per_upstream, per_caller, most) in
            [(5, None, 3), (100, None, 50), (1, None, 1), (2, None, 1), (5, Some(5), 5), (5, Some(1), 1)]
        {
            let settings =
                RouteConcurrency { per_upstream, per_caller, queue: 0, ..RouteConcurrency::default() };
            let queue = Arc::new(FairQueue::new(settings, QueueGauges::noop()));
            let mut held = Vec::new();
            while let Ok(place) = acquire(&queue, "greedy").await {
                held.push(place);
            }
            assert_eq!(held.len(), most, "{settings:?}");
            assert_eq!(acquire(&queue, "modest").await.is_ok(), most < per_upstream, "{settings:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_at_its_cap_waits_for_a_place_of_its_own_and_delays_no_other() {
        let settings = RouteConcurrency { per_upstream: 2, ..RouteConcurrency::default() };
        let queue = Arc::new(FairQueue::new(settings, QueueGauges::noop()));
        let first = acquire(&queue, "greedy").await.unwrap();
        let own = Arc::clone(&queue);
        let second = tokio::spawn(async move { acquire(&own, "greedy").await });
        until_waiting(&queue, 1).await;
        for _ in 0..3 {
            drop(acquire(&queue, "modest").await.unwrap());
            assert_eq!(queue.state.lock().waiting, 1, "a free place is not for a caller at its cap");
        }
        drop(first);
        drop(second.await.unwrap().unwrap());
        assert!(is_empty(&queue, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_gets_whichever_place_is_free_first() {
        let (left, right) = (queue(1, 10), queue(1, 10));
        let (both, other) = ([(3, &left), (7, &right)], caller("b"));
        let held = [
            acquire_any(&both, &caller("a")).await.unwrap(),
            acquire_any(&both, &caller("a")).await.unwrap(),
        ];
        assert_eq!([held[0].0, held[1].0], [3, 7], "the second place is at the other upstream");
        let [_at_left, at_right] = held;
        let freed = async {
            until_waiting(&right, 1).await;
            drop(at_right);
        };
        let (entered, ()) = tokio::join!(acquire_any(&both, &other), freed);
        assert_eq!(entered.unwrap().0, 7);
        assert_eq!(left.state.lock().waiting, 0, "it no longer waits for the other");
        assert!(is_empty(&right, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_turned_away_only_if_every_queue_is_full() {
        let (full, roomy) = (queue(1, 0), queue(1, 1));
        let _held = (acquire(&full, "a").await.unwrap(), acquire(&roomy, "a").await.unwrap());
        assert!(acquire(&full, "b").await.is_err());
        let (own, other) = (Arc::clone(&full), Arc::clone(&roomy));
        let waits = tokio::spawn(async move { acquire_any(&[(0, &own), (1, &other)], &caller("b")).await });
        until_waiting(&roomy, 1).await;
        assert!(acquire_any(&[(0, &full), (1, &roomy)], &caller("c")).await.is_err());
        waits.abort();
        assert!(waits.await.is_err());
        assert_eq!(roomy.state.lock().waiting, 0);
    }
}
