//! Turns: of all callers of this process that wait for the same places, one asks the store. The others wait behind it, in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spile_core::{Amount, Charge, Charges};
use spile_runtime::Runtime;
use tokio::sync::MutexGuard;

/// The pause before the store is asked again, at first. A process that has just got a place leaves the others time to ask for the next:
/// this long in all for the places of a limit, so that those that become free together are not all taken by one process.
const LONGEST: Duration = Duration::from_millis(20);
/// The pause of a process that has waited for long.
const SHORTEST: Duration = Duration::from_millis(5);
/// The most chains that a process asks for this often. With more of them it asks for each less often.
const CHAINS: f64 = 5.0;

/// A key and a limit.
type Place = (Box<str>, Box<str>);
/// A fair lock: callers get it in the order in which they asked for it.
type Queue = Arc<tokio::sync::Mutex<Waiting>>;

/// When this process last got a place, or began to wait. `None` if all callers have got a place at once.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Option<Instant>);

/// The queues of all chains that are waited for, and the number of callers of each.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Vec<Place>, (usize, Queue)>>);

/// A place in the queue of a chain.
#[derive(Debug)]
pub(crate) struct Turn<'t> {
    turns: &'t Turns,
    chain: Vec<Place>,
    queue: Queue,
    /// The places of the smallest limit.
    places: f64,
}

impl Turns {
    /// Queues for the places of these charges.
    pub(crate) fn queue_for(&self, charges: &Charges<'_>) -> Turn<'_> {
        let place =
            |charge: &Charge<'_>| (charge.key().as_str().into(), charge.limit().name().as_str().into());
        let chain: Vec<Place> = charges.iter().map(place).collect();
        let mut queues = self.0.lock();
        let (callers, queue) = queues.entry(chain.clone()).or_default();
        *callers += 1;
        let permits = charges.iter().filter(|charge| charge.needs_permit());
        let places = permits.map(|charge| charge.limit().limit().capacity()).min().unwrap_or(Amount::TOKEN);
        Turn { turns: self, chain, queue: Arc::clone(queue), places: places.as_f64() }
    }
}

impl Turn<'_> {
    /// Waits until all callers in front have got a place or have given up, and other processes that share the store could ask for the
    /// next.
    pub(crate) async fn first(&self, is_shared: bool, runtime: &Runtime) -> MutexGuard<'_, Waiting> {
        let waiting = self.queue.lock().await;
        if let Waiting(Some(since)) = *waiting
            && is_shared
        {
            let pause = if self.places > 1.0 { LONGEST.div_f64(self.places - 1.0) } else { Duration::ZERO };
            runtime.sleep_until(since + self.spread(pause, runtime)).await;
        }
        waiting
    }

    /// How long to wait before the store is asked again: less, the longer this process has waited.
    pub(crate) fn pause(&self, waiting: &mut Waiting, runtime: &Runtime) -> Duration {
        let now = runtime.now();
        let waited = now - *waiting.0.get_or_insert(now);
        self.spread(LONGEST.saturating_sub(waited / 4).max(SHORTEST), runtime)
    }

    /// A pause, longer if much is waited for. Processes that began together do not ask together.
    fn spread(&self, pause: Duration, runtime: &Runtime) -> Duration {
        let chains = self.turns.0.lock().len() as f64;
        pause.mul_f64((chains / CHAINS).max(1.0) * (0.75 + runtime.random_share() / 2.0))
    }
}

impl Waiting {
    /// Notes that a caller got a place.
    pub(crate) fn got_place(&mut self, runtime: &Runtime) {
        self.0 = self.0.map(|_| runtime.now());
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queues = self.turns.0.lock();
        if let Some((callers, _)) = queues.get_mut(&self.chain) {
            *callers -= 1;
            if *callers == 0 {
                queues.remove(&self.chain);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spile_core::{Cost, Key, Limit, LimitName, NamedLimit};

    use super::*;

    #[test]
    fn a_queue_ends_with_its_last_caller() {
        let (turns, limit) = (Turns::default(), Limit::concurrent(1).build().unwrap());
        let limit = NamedLimit::new(LimitName::new("jobs").unwrap(), limit);
        let charges = Charges::one(Key::new("ann").unwrap(), &limit, Cost::ONE).unwrap();
        let (first, second) = (turns.queue_for(&charges), turns.queue_for(&charges));
        assert!(Arc::ptr_eq(&first.queue, &second.queue));
        drop(first);
        assert_eq!(turns.0.lock().len(), 1);
        drop(second);
        assert!(turns.0.lock().is_empty());
    }
}
