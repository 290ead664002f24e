//! The responses of `/metrics`. Their number in memory is bounded, because clients may read them slowly or not at all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use spile_core::{Clock, Micros, SystemClock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many responses may be in memory before clients share one.
const MAX_HELD: usize = 32;
/// How old a shared response may be.
const FRESH: Duration = Duration::from_secs(1);

/// The responses in memory. Clones share them.
#[derive(Clone)]
pub(super) struct Expositions(Arc<State>);

struct State {
    clock: SystemClock,
    places: Arc<Semaphore>,
    /// The latest response, and when it was rendered.
    latest: Mutex<(Micros, Bytes)>,
}

/// A response that holds its permit until its last reader is done.
struct Held {
    text: String,
    _place: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Expositions {
    pub(super) fn new() -> Self {
        let places = Arc::new(Semaphore::new(MAX_HELD));
        Self(Arc::new(State { clock: SystemClock::new(), places, latest: Mutex::default() }))
    }

    /// Renders a response, or returns the latest one if too many are in memory.
    pub(super) fn next(&self, render: impl FnOnce() -> String) -> Bytes {
        let State { clock, places, latest } = &*self.0;
        let (now, place) = (clock.now(), Arc::clone(places).try_acquire_owned().ok());
        let mut latest = latest.lock();
        let is_fresh = now.since_us(latest.0) < FRESH.as_micros() as u64;
        if place.is_none() && is_fresh && !latest.1.is_empty() {
            return latest.1.clone();
        }
        let answer = Bytes::from_owner(Held { text: render(), _place: place });
        *latest = (now, answer.clone());
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_not_read_are_shared_and_read_ones_are_new() {
        let expositions = Expositions::new();
        let mut count = 0;
        let mut next = || {
            expositions.next(|| {
                count += 1;
                count.to_string()
            })
        };
        for number in 1..=1_000 {
            assert_eq!(next(), number.to_string(), "read at once");
        }
        let unread: Vec<Bytes> = (0..10_000).map(|_| next()).collect();
        drop(unread);
        let made = next();
        assert!(count < 1_000 + 2 * MAX_HELD + 20, "{count}");
        assert_eq!(made, count.to_string());
    }
}
