//! What `/metrics` answers with, and how many such answers are held for clients that do not read them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use spile_core::{Clock, Micros, SystemClock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Answers that are held before some are shared.
const MAX_HELD: usize = 32;
/// How old an answer may be that is shared.
const FRESH: Duration = Duration::from_secs(1);

/// The answers that are held. Clones hold them together.
#[derive(Clone)]
pub(super) struct Expositions(Arc<State>);

struct State {
    clock: SystemClock,
    places: Arc<Semaphore>,
    /// The latest one, and when it was made.
    latest: Mutex<(Micros, Bytes)>,
}

/// A text that keeps its place until the last reader is done with it.
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

    /// A new answer, or the latest one while too many are held: clients that read nothing share what they do not read.
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
