//! How long the machine itself stood still, so that its stalls are not taken for the limiter's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use spile_core::{Clock, SystemClock};
use spile_testkit::wait;

/// A thread that does nothing but wake up, and notices when it wakes late. It shares no runtime with the callers: a
/// limiter that blocks theirs does not show here, and so is not excused.
pub(crate) struct StallWatch {
    stop: Arc<AtomicBool>,
    worst_us: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl StallWatch {
    pub(crate) fn start() -> Self {
        let (stop, worst_us) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let watch = { (Arc::clone(&stop), Arc::clone(&worst_us)) };
        let thread = std::thread::spawn(move || watch_for_stalls(&watch.0, &watch.1));
        Self { stop, worst_us, thread: Some(thread) }
    }

    /// The longest that it overslept.
    pub(crate) fn worst(&self) -> Duration {
        Duration::from_micros(self.worst_us.load(Ordering::Relaxed))
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn watch_for_stalls(stop: &AtomicBool, worst_us: &AtomicU64) {
    const NAP: Duration = Duration::from_millis(1);
    let clock = SystemClock::new();
    while !stop.load(Ordering::Relaxed) {
        let before = clock.now();
        wait::lasting(NAP);
        let overslept = Duration::from_micros(clock.now().since_us(before)).saturating_sub(NAP);
        worst_us.fetch_max(overslept.as_micros() as u64, Ordering::Relaxed);
    }
}
