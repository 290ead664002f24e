//! Waiting for a condition instead of for a time.

use std::time::Duration;

use spile_core::{Clock, SystemClock};

/// How long a fixture may take to start or to change its state before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Short enough that tests are not slowed down, long enough that polling does not load the machine.
const PAUSE: Duration = Duration::from_millis(5);

/// Calls `ask` until it returns `Some`, and returns the value and the time that took.
///
/// # Panics
/// If no answer comes within `patience`. The message names `what` was waited for.
pub fn until<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Option<T>) -> (T, Duration) {
    let clock = SystemClock::new();
    let started = clock.now();
    loop {
        if let Some(answer) = ask() {
            return (answer, Duration::from_micros(clock.now().since_us(started)));
        }
        let waited = Duration::from_micros(clock.now().since_us(started));
        assert!(waited < patience, "waited {waited:?} for {what}");
        pause();
    }
}

/// Like [`until`], for a condition that is either met or not.
///
/// # Panics
/// Where it is not met within [`PATIENCE`].
pub fn until_true(what: &str, mut met: impl FnMut() -> bool) -> Duration {
    until(what, PATIENCE, || met().then_some(())).1
}

/// Waits for a condition for at most `patience`, and returns whether it was met.
pub fn within(patience: Duration, mut met: impl FnMut() -> bool) -> bool {
    let clock = SystemClock::new();
    let started = clock.now();
    while !met() {
        if Duration::from_micros(clock.now().since_us(started)) >= patience {
            return false;
        }
        pause();
    }
    true
}

/// Sleeps, for a fault that must last or a load that is measured.
#[allow(
    clippy::disallowed_methods,
    reason = "other processes live by the machine's clock; no clock here moves them"
)]
pub fn lasting(time: Duration) {
    std::thread::sleep(time);
}

fn pause() {
    lasting(PAUSE);
}
