//! A cap on requests under way, and a queue before it in which callers take turns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::caller_key::PlaceHolder;
use crate::gateway::metrics::QueueGauges;

/// How many requests each upstream of a route has under way at once, and how many wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Concurrency {
    /// Requests under way at one upstream. Default 100.
    pub per_upstream: usize,
    /// Those of them that one caller may have: a tenant, a principal or an address. `None` is half of `per_upstream`,
    /// rounded up, and the default.
    pub per_caller: Option<usize>,
    /// Requests that wait for one upstream; more are refused with 503. Default 1,000.
    pub queue: usize,
    /// How long a request waits for its turn. Default 5 s.
    pub wait: Duration,
}

impl Concurrency {
    /// Places that one caller may hold at an upstream.
    pub fn places_per_caller(&self) -> usize {
        self.per_caller.unwrap_or_else(|| self.per_upstream.div_ceil(2)).max(1)
    }
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { per_upstream: 100, per_caller: None, queue: 1_000, wait: Duration::from_secs(5) }
    }
}

/// The places of one upstream. Those who wait for one are let in caller by caller, so that a caller with a thousand
/// requests delays one with a single request by one turn only, and no caller holds more than its share.
#[derive(Debug)]
pub(crate) struct FairQueue {
    settings: Concurrency,
    state: Mutex<State>,
    gauges: QueueGauges,
}

/// While a place is free, all who wait hold as many as they may.
#[derive(Debug)]
struct State {
    free: usize,
    waiting: usize,
    held: HashMap<PlaceHolder, usize>,
    lines: HashMap<PlaceHolder, Line>,
    /// Callers who wait, in the order of their turns.
    turns: BTreeMap<Ticket, PlaceHolder>,
    /// The next one to be drawn.
    next_ticket: Ticket,
}

/// The order of those who wait, and what finds one of them that leaves without a look at the others.
type Ticket = u64;

/// The requests of one caller that wait.
#[derive(Debug)]
struct Line {
    /// The caller's place among the turns.
    turn: Ticket,
    waiters: BTreeMap<Ticket, Waiter>,
}

/// A request that waits, for this upstream and maybe for others: the first place that is free is its own.
#[derive(Debug)]
struct Waiter {
    /// Which of the upstreams that it waits for this one is.
    index: usize,
    turn: Arc<Turn>,
}

/// Where the place of a request is handed over. Empty once it has one.
type Turn = Mutex<Option<oneshot::Sender<(usize, Permit)>>>;

/// A place at the upstream, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit(Option<(Arc<FairQueue>, PlaceHolder)>);

/// There is no place, and none will be free in time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Crowded;

/// What lining up came to.
enum Entry {
    Entered(Permit),
    Waits(Ticket),
    Full,
}

/// A place for one request of `caller` at one of these upstreams: at the first that has one, else at whichever has one
/// first. Says at which.
pub(crate) async fn enter_any(
    queues: &[(usize, &Arc<FairQueue>)],
    caller: &PlaceHolder,
) -> Result<(usize, Permit), Crowded> {
    for (index, queue) in queues {
        if let Some(permit) = queue.try_enter(caller) {
            return Ok((*index, permit));
        }
    }
    // Boxed: few requests wait, and the others need not carry it around.
    Box::pin(wait_for_any(queues, caller)).await
}

async fn wait_for_any(
    queues: &[(usize, &Arc<FairQueue>)],
    caller: &PlaceHolder,
) -> Result<(usize, Permit), Crowded> {
    let mut lined_up = LinedUp { caller, queues: Vec::new() };
    let (sender, place) = oneshot::channel();
    let turn = Arc::new(Mutex::new(Some(sender)));
    let mut wait = Duration::ZERO;
    for &(index, queue) in queues {
        match queue.line_up(caller, Waiter { index, turn: Arc::clone(&turn) }) {
            // It was given back since. The request leaves the lines that it stands in already.
            Entry::Entered(permit) => return Ok((index, permit)),
            Entry::Waits(ticket) => {
                lined_up.queues.push((index, queue, ticket));
                wait = wait.max(queue.settings.wait);
            }
            Entry::Full => {}
        }
    }
    if lined_up.queues.is_empty() {
        return Err(Crowded);
    }
    // Kept by the lines alone: a request that they have all turned away waits no longer.
    drop(turn);
    let (index, permit) = tokio::time::timeout(wait, place).await.ok().and_then(Result::ok).ok_or(Crowded)?;
    // That one has taken it out of its line.
    lined_up.queues.retain(|(other, ..)| *other != index);
    Ok((index, permit))
}

/// The lines that a request stands in. It leaves them when it has a place elsewhere, gives up or goes away.
struct LinedUp<'q> {
    caller: &'q PlaceHolder,
    queues: Vec<(usize, &'q Arc<FairQueue>, Ticket)>,
}

impl Drop for LinedUp<'_> {
    fn drop(&mut self) {
        for (_, queue, ticket) in &self.queues {
            let mut state = queue.state.lock();
            state.leave(self.caller, *ticket);
            queue.show(&state);
        }
    }
}

impl FairQueue {
    pub(crate) fn new(settings: Concurrency, gauges: QueueGauges) -> Self {
        let state = State {
            free: settings.per_upstream.max(1),
            waiting: 0,
            held: HashMap::default(),
            lines: HashMap::default(),
            turns: BTreeMap::new(),
            next_ticket: 0,
        };
        Self { settings, state: Mutex::new(state), gauges }
    }

    fn show(&self, state: &State) {
        self.gauges.in_use.set((self.settings.per_upstream.max(1) - state.free) as f64);
        self.gauges.waiting.set(state.waiting as f64);
    }

    /// A place, if there is one for this caller.
    fn try_enter(self: &Arc<Self>, caller: &PlaceHolder) -> Option<Permit> {
        let mut state = self.state.lock();
        self.take(&mut state, caller)
    }

    /// A place in the line, unless there is one at the upstream.
    fn line_up(self: &Arc<Self>, caller: &PlaceHolder, waiter: Waiter) -> Entry {
        let mut state = self.state.lock();
        if let Some(permit) = self.take(&mut state, caller) {
            return Entry::Entered(permit);
        }
        if state.waiting >= self.settings.queue && !state.make_room(caller) {
            return Entry::Full;
        }
        let ticket = state.line_up(caller, waiter);
        self.show(&state);
        Entry::Waits(ticket)
    }

    fn take(self: &Arc<Self>, state: &mut State, caller: &PlaceHolder) -> Option<Permit> {
        if state.free == 0 || state.held_by(caller) >= self.settings.places_per_caller() {
            return None;
        }
        state.free -= 1;
        *state.held.entry(caller.clone()).or_default() += 1;
        self.show(state);
        Some(Permit(Some((Arc::clone(self), caller.clone()))))
    }

    /// Hands the place of a caller to the next one, or keeps it.
    fn release(self: &Arc<Self>, from: &PlaceHolder) {
        let mut state = self.state.lock();
        state.give_back(from);
        while let Some((caller, waiter)) = state.next(self.settings.places_per_caller()) {
            let Some(sender) = waiter.turn.lock().take() else { continue };
            let permit = Permit(Some((Arc::clone(self), caller.clone())));
            let Err((_, mut unwanted)) = sender.send((waiter.index, permit)) else {
                state.free -= 1;
                *state.held.entry(caller).or_default() += 1;
                break;
            };
            // The request has gone. Its permit must not be given back: it was never counted.
            unwanted.0 = None;
        }
        self.show(&state);
    }
}

impl State {
    fn held_by(&self, caller: &PlaceHolder) -> usize {
        self.held.get(caller).copied().unwrap_or(0)
    }

    fn give_back(&mut self, caller: &PlaceHolder) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(caller) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(caller);
            }
        }
    }

    const fn draw_ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn line_up(&mut self, caller: &PlaceHolder, waiter: Waiter) -> Ticket {
        let ticket = self.draw_ticket();
        if let Some(line) = self.lines.get_mut(caller) {
            line.waiters.insert(ticket, waiter);
        } else {
            self.turns.insert(ticket, caller.clone());
            let line = Line { turn: ticket, waiters: BTreeMap::from([(ticket, waiter)]) };
            self.lines.insert(caller.clone(), line);
        }
        self.waiting += 1;
        ticket
    }

    /// The first in line of the caller whose turn it is, leaving out those who hold as many places as they may.
    fn next(&mut self, per_caller: usize) -> Option<(PlaceHolder, Waiter)> {
        let (&turn, _) = self.turns.iter().find(|(_, caller)| self.held_by(caller) < per_caller)?;
        let (later, caller) = (self.draw_ticket(), self.turns.remove(&turn)?);
        let line = self.lines.get_mut(&caller)?;
        let (_, first) = line.waiters.pop_first()?;
        if line.waiters.is_empty() {
            self.lines.remove(&caller);
        } else {
            line.turn = later;
            self.turns.insert(later, caller.clone());
        }
        self.waiting -= 1;
        Some((caller, first))
    }

    /// Takes a request out of its caller's line, unless its turn has come.
    /// Turns away the last in the longest line, for a caller whose own line is shorter. A caller with many requests
    /// must not take up the queue of the others.
    fn make_room(&mut self, caller: &PlaceHolder) -> bool {
        let own = self.lines.get(caller).map_or(0, |line| line.waiters.len());
        let Some((longest, line)) = self.lines.iter().max_by_key(|(_, line)| line.waiters.len()) else {
            return false;
        };
        let Some((&last, _)) = line.waiters.last_key_value().filter(|_| line.waiters.len() > own + 1) else {
            return false;
        };
        let longest = longest.clone();
        self.leave(&longest, last);
        true
    }

    fn leave(&mut self, caller: &PlaceHolder, ticket: Ticket) {
        let Some(line) = self.lines.get_mut(caller) else { return };
        if line.waiters.remove(&ticket).is_none() {
            return;
        }
        self.waiting -= 1;
        if line.waiters.is_empty() {
            self.turns.remove(&line.turn);
            self.lines.remove(caller);
        }
    }
}

impl Drop for Permit {
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
        let settings =
            Concurrency { per_upstream, queue, per_caller: Some(per_upstream), ..Concurrency::default() };
        Arc::new(FairQueue::new(settings, QueueGauges::noop()))
    }

    fn caller(name: &str) -> PlaceHolder {
        PlaceHolder::Tenant(name.into())
    }

    async fn enter(queue: &Arc<FairQueue>, name: &str) -> Result<Permit, Crowded> {
        enter_any(&[(0, queue)], &caller(name)).await.map(|(_, permit)| permit)
    }

    async fn in_line(queue: &FairQueue, count: usize) {
        while queue.state.lock().waiting != count {
            tokio::task::yield_now().await;
        }
    }

    fn is_empty(queue: &FairQueue, free: usize) -> bool {
        let state = queue.state.lock();
        let no_callers = state.held.is_empty() && state.lines.is_empty() && state.turns.is_empty();
        no_callers && (state.free, state.waiting) == (free, 0)
    }

    #[tokio::test(start_paused = true)]
    async fn callers_take_turns_however_many_requests_one_of_them_has() {
        let queue = queue(1, 100);
        let first = enter(&queue, "greedy").await.unwrap();
        let order: Arc<Mutex<Vec<&str>>> = Arc::default();
        let mut waiting = Vec::new();
        for caller in ["greedy", "greedy", "greedy", "modest"] {
            let (own, log) = (Arc::clone(&queue), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let _place = enter(&own, caller).await.unwrap();
                log.lock().push(caller);
            }));
            in_line(&queue, waiting.len()).await;
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
        let first = enter(&queue, "greedy").await.unwrap();
        let mut greedy = Vec::new();
        for _ in 0..4 {
            let own = Arc::clone(&queue);
            greedy.push(tokio::spawn(async move { enter(&own, "greedy").await.map(drop) }));
            in_line(&queue, greedy.len()).await;
        }
        assert!(enter(&queue, "greedy").await.is_err(), "the queue is full for who fills it");
        let own = Arc::clone(&queue);
        let modest = tokio::spawn(async move { enter(&own, "modest").await.map(drop) });
        let last = greedy.pop().unwrap();
        assert_eq!(last.await.unwrap(), Err(Crowded), "the last of the longest line makes room");
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
        let _only = enter(&queue, "a").await.unwrap();
        let (waited, full) = tokio::join!(enter(&queue, "a"), enter(&queue, "b"));
        assert!(waited.is_err() && full.is_err());
        assert_eq!(queue.state.lock().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_goes_away_while_it_waits_leaves_no_trace() {
        let queue = queue(1, 10);
        let only = enter(&queue, "a").await.unwrap();
        let gone = tokio::time::timeout(Duration::from_millis(1), enter(&queue, "b")).await;
        assert!(gone.is_err());
        drop(only);
        assert!(is_empty(&queue, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_leaves_the_middle_of_the_line_keeps_the_order_of_the_others() {
        let queue = queue(1, 10);
        let first = enter(&queue, "a").await.unwrap();
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let mut waiting = Vec::new();
        for place in 0..5 {
            let (own, log) = (Arc::clone(&queue), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let _place = enter(&own, "a").await.unwrap();
                log.lock().push(place);
            }));
            in_line(&queue, waiting.len()).await;
        }
        for (left, place) in [0, 2].into_iter().enumerate() {
            waiting[place].abort();
            in_line(&queue, 4 - left).await;
        }
        drop(first);
        for task in waiting {
            let _aborted = task.await;
        }
        assert_eq!(*order.lock(), [1, 3, 4]);
        assert!(is_empty(&queue, 1));
    }

    /// Minutes would go by if each request that leaves looked at all others, while a second is enough.
    #[test]
    fn a_long_queue_empties_without_a_look_at_all_who_wait() {
        const MANY: usize = 100_000;
        let leave_one_by_one = || {
            let (queue, turn) = (queue(1, 2 * MANY), Arc::<Turn>::default());
            let mut state = queue.state.lock();
            let callers: Vec<_> = (0..MANY).map(|name| caller(&name.to_string())).collect();
            let callers: Vec<_> = callers.into_iter().chain((0..MANY).map(|_| caller("greedy"))).collect();
            let line_up = |caller| state.line_up(caller, Waiter { index: 0, turn: Arc::clone(&turn) });
            let tickets: Vec<_> = callers.iter().map(line_up).collect();
            for (caller, ticket) in callers.iter().zip(tickets).rev() {
                state.leave(caller, ticket);
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
            let places = (enter(&queue, "a").await.unwrap(), enter(&queue, "b").await.unwrap());
            drop(places);
        }
        assert!(is_empty(&queue, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_holds_half_of_the_places_unless_told_otherwise() {
        for (per_upstream, per_caller, most) in
            [(5, None, 3), (100, None, 50), (1, None, 1), (2, None, 1), (5, Some(5), 5), (5, Some(1), 1)]
        {
            let settings = Concurrency { per_upstream, per_caller, queue: 0, ..Concurrency::default() };
            let queue = Arc::new(FairQueue::new(settings, QueueGauges::noop()));
            let mut held = Vec::new();
            while let Ok(place) = enter(&queue, "greedy").await {
                held.push(place);
            }
            assert_eq!(held.len(), most, "{settings:?}");
            assert_eq!(enter(&queue, "modest").await.is_ok(), most < per_upstream, "{settings:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_at_its_cap_waits_for_a_place_of_its_own_and_delays_no_other() {
        let settings = Concurrency { per_upstream: 2, ..Concurrency::default() };
        let queue = Arc::new(FairQueue::new(settings, QueueGauges::noop()));
        let first = enter(&queue, "greedy").await.unwrap();
        let own = Arc::clone(&queue);
        let second = tokio::spawn(async move { enter(&own, "greedy").await });
        in_line(&queue, 1).await;
        for _ in 0..3 {
            drop(enter(&queue, "modest").await.unwrap());
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
        let held =
            [enter_any(&both, &caller("a")).await.unwrap(), enter_any(&both, &caller("a")).await.unwrap()];
        assert_eq!([held[0].0, held[1].0], [3, 7], "the second place is at the other upstream");
        let [_at_left, at_right] = held;
        let freed = async {
            in_line(&right, 1).await;
            drop(at_right);
        };
        let (entered, ()) = tokio::join!(enter_any(&both, &other), freed);
        assert_eq!(entered.unwrap().0, 7);
        assert_eq!(left.state.lock().waiting, 0, "it no longer waits for the other");
        assert!(is_empty(&right, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_turned_away_only_if_every_queue_is_full() {
        let (full, roomy) = (queue(1, 0), queue(1, 1));
        let _held = (enter(&full, "a").await.unwrap(), enter(&roomy, "a").await.unwrap());
        assert!(enter(&full, "b").await.is_err());
        let (own, other) = (Arc::clone(&full), Arc::clone(&roomy));
        let waits = tokio::spawn(async move { enter_any(&[(0, &own), (1, &other)], &caller("b")).await });
        in_line(&roomy, 1).await;
        assert!(enter_any(&[(0, &full), (1, &roomy)], &caller("c")).await.is_err());
        waits.abort();
        assert!(waits.await.is_err());
        assert_eq!(roomy.state.lock().waiting, 0);
    }
}
