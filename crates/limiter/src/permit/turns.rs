//! Turns: of all that wait for the same limits of one key in this process, one asks the store. The others wait behind it, in order.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Charge, Charges};
use spile_runtime::Runtime;
use tokio::sync::Notify;

/// The first pause before the store is asked again, and the longest. A release in this process ends it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A key and a limit.
type Place = (Box<str>, Box<str>);

/// The queues of all chains that are waited for.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Queues>);

#[derive(Debug, Default)]
struct Queues {
    by_chain: HashMap<Vec<Place>, Weak<Queue>>,
    /// The queues that wait for a place, among other things.
    by_place: HashMap<Place, Vec<Weak<Queue>>>,
    /// At so many chains, those without a waiter are removed.
    clean_at: usize,
}

#[derive(Debug, Default)]
struct Queue {
    /// Fair: it is locked in the order in which it was asked for.
    first: tokio::sync::Mutex<()>,
    released: Notify,
}

/// The right to ask the store for a place. The next waiter has it when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<Queue>,
    pauses: u32,
}

impl Turns {
    /// Waits until all that came before have got a place or have given up, and calls `ask` then.
    pub(crate) async fn wait<T>(&self, charges: &Charges<'_>, ask: impl AsyncFnOnce(Turn) -> T) -> T {
        let queue = self.0.lock().queue(charges);
        let first = queue.first.lock().await;
        let answer = ask(Turn { queue: Arc::clone(&queue), pauses: 0 }).await;
        drop(first);
        answer
    }

    /// Wakes the first of each queue for a place that is free now.
    pub(crate) fn released(&self, charges: &Charges<'_>) {
        let mut queues = self.0.lock();
        if queues.by_place.is_empty() {
            return;
        }
        for place in charges.iter().map(place) {
            if let Some(waiting) = queues.by_place.get_mut(&place) {
                waiting.retain(|queue| queue.strong_count() > 0);
                waiting.iter().filter_map(Weak::upgrade).for_each(|queue| queue.released.notify_one());
                if waiting.is_empty() {
                    queues.by_place.remove(&place);
                }
            }
        }
    }
}

impl Queues {
    /// Fewer chains are not worth cleaning.
    const FEW: usize = 64;

    /// The queue of these charges.
    fn queue(&mut self, charges: &Charges<'_>) -> Arc<Queue> {
        let chain: Vec<Place> = charges.iter().map(place).collect();
        if let Some(queue) = self.by_chain.get(&chain).and_then(Weak::upgrade) {
            return queue;
        }
        self.clean();
        let queue = Arc::new(Queue::default());
        for charge in charges.iter().filter(|charge| charge.needs_permit()) {
            self.by_place.entry(place(charge)).or_default().push(Arc::downgrade(&queue));
        }
        self.by_chain.insert(chain, Arc::downgrade(&queue));
        queue
    }

    fn clean(&mut self) {
        if self.by_chain.len() >= self.clean_at.max(Self::FEW) {
            self.by_chain.retain(|_, queue| queue.strong_count() > 0);
            self.by_place.retain(|_, waiting| {
                waiting.retain(|queue| queue.strong_count() > 0);
                !waiting.is_empty()
            });
            self.clean_at = 2 * self.by_chain.len();
        }
    }
}

fn place(charge: &Charge<'_>) -> Place {
    (charge.key().as_str().into(), charge.limit().name().as_str().into())
}

impl Turn {
    /// Waits until a place is released in this process, or for a while: one may be released elsewhere.
    pub(crate) async fn pause(&mut self, at_most: Duration, runtime: &Runtime) {
        let pause = (FIRST_PAUSE * 2_u32.pow(self.pauses.min(8))).min(LONGEST_PAUSE);
        self.pauses += 1;
        // Instances that began to wait together do not ask together.
        let pause = pause.mul_f64(0.5 + runtime.random_share()).min(at_most);
        let _released = runtime.timeout(pause, self.queue.released.notified()).await;
    }
}
