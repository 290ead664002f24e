//! Turns: of all that wait for a place of one key in this process, one asks the store. The others wait behind it, in order.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::Charges;
use tokio::sync::Notify;

/// The first pause before the store is asked again, and the longest. A release in this process ends it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A key and a limit.
type Place = (Box<str>, Box<str>);

/// The queues of all places that are waited for.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Place, Weak<Queue>>>);

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
        let queue = self.queue(charges);
        let first = queue.first.lock().await;
        let answer = ask(Turn { queue: Arc::clone(&queue), pauses: 0 }).await;
        drop(first);
        answer
    }

    /// Wakes the first that waits for a place that is free now.
    pub(crate) fn released(&self, charges: &Charges<'_>) {
        let mut queues = self.0.lock();
        if queues.is_empty() {
            return;
        }
        for charge in charges.iter() {
            let place = (charge.key().as_str().into(), charge.limit().name().as_str().into());
            match queues.get(&place).map(Weak::upgrade) {
                Some(Some(queue)) => queue.released.notify_one(),
                Some(None) => drop(queues.remove(&place)),
                None => {}
            }
        }
    }

    /// The queue of the first place of these charges.
    fn queue(&self, charges: &Charges<'_>) -> Arc<Queue> {
        let first = charges.first_permit().unwrap_or(&charges[0]);
        let place = (first.key().as_str().into(), first.limit().name().as_str().into());
        let mut queues = self.0.lock();
        queues.retain(|_, queue| queue.strong_count() > 0);
        if let Some(queue) = queues.get(&place).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::new(Queue::default());
        queues.insert(place, Arc::downgrade(&queue));
        queue
    }
}

impl Turn {
    /// Waits until a place is released in this process, or for a while: one may be released elsewhere.
    pub(crate) async fn pause(&mut self, at_most: Duration) {
        let pause = (FIRST_PAUSE * 2_u32.pow(self.pauses.min(8))).min(LONGEST_PAUSE);
        self.pauses += 1;
        // Instances that began to wait together do not ask together.
        let pause = pause.mul_f64(0.5 + fastrand::f64()).min(at_most);
        let _released = tokio::time::timeout(pause, self.queue.released.notified()).await;
    }
}
