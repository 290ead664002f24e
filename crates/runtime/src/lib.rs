//! Time, tasks, connections and random numbers, injected: those of tokio by default, those of a simulation in tests.
//!
//! Every crate that waits, spawns, connects or draws random numbers does so through a [`Runtime`]. A [`Driver`] replaces tokio: it
//! sets the time, schedules the tasks and chooses the random numbers, so that a simulation repeats a run from one seed. The time of
//! buckets is not part of it: that is a `Clock`.

#[cfg(feature = "net")]
mod connect;
mod driver;
mod shared_tasks;
mod sleep;
mod spawner;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use tokio::task::coop;

#[cfg(feature = "net")]
pub use self::connect::{ByteStream, DialTarget};
pub use self::driver::{BoxFuture, Driver, StopTask};
pub use self::shared_tasks::SharedTasks;
pub use self::sleep::Sleep;
pub use self::spawner::{Spawner, Task};

/// Provides time, tasks, connections and random numbers. Clones share one runtime.
#[derive(Clone, Default)]
pub struct Runtime(Option<Arc<dyn Driver>>);

/// The deadline passed before the future was ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Elapsed;

impl Runtime {
    /// Uses the tokio runtime of the caller. It is looked up on each call, so that one value serves several runtimes.
    pub const fn tokio() -> Self {
        Self(None)
    }

    /// Uses this driver instead of tokio.
    pub fn driven_by(driver: impl Driver) -> Self {
        Self(Some(Arc::new(driver)))
    }

    /// The monotonic time, for deadlines and pauses. Does not advance by itself in a tokio test with paused time.
    #[inline]
    pub fn now(&self) -> Instant {
        self.0.as_ref().map_or_else(|| tokio::time::Instant::now().into_std(), |driver| driver.now())
    }

    /// The time of the wall clock since the Unix epoch, to guess the time of another machine.
    #[allow(clippy::disallowed_methods, reason = "this is where the time is injected")]
    pub fn wall_time(&self) -> Duration {
        let tokio = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.as_ref().map_or_else(tokio, |driver| driver.wall_time())
    }

    /// The moment that lies ahead by this time.
    pub fn after(&self, span: Duration) -> Instant {
        // Longer than any process runs.
        const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);
        let now = self.now();
        now.checked_add(span).unwrap_or(now + FOREVER)
    }

    /// Waits for this time.
    pub fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_until(self.after(span))
    }

    /// Waits until this moment.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        let driven = |driver: &Arc<dyn Driver>| Sleep::Driven { sleep: driver.sleep_until(deadline) };
        self.0.as_ref().map_or_else(|| Sleep::tokio(deadline), driven)
    }

    /// Waits for a future for at most this time. A future that is ready when it is first polled is always in time, starts no timer
    /// and needs no runtime.
    pub async fn timeout<F: Future>(&self, span: Duration, future: F) -> Result<F::Output, Elapsed> {
        within(|| self.sleep(span), future).await
    }

    /// Waits for a future until this moment.
    pub async fn timeout_at<F: Future>(&self, deadline: Instant, future: F) -> Result<F::Output, Elapsed> {
        within(|| self.sleep_until(deadline), future).await
    }

    /// Returns a handle that starts tasks on the caller's runtime. `None` outside of a runtime.
    pub fn spawner(&self) -> Option<Spawner> {
        Spawner::new(self.0.as_ref())
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        self.0.as_ref().map_or_else(|| fastrand::u64(..), |driver| driver.random())
    }

    /// A random number in the range [0, 1).
    pub fn random_share(&self) -> f64 {
        // The 53 bits of a double's significand.
        (self.random() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A random number of 128 bits.
    pub fn random_id(&self) -> u128 {
        u128::from(self.random()) << 64 | u128::from(self.random())
    }

    /// A seed for tables whose layout shows in what they do. `None` without a driver: then each table draws its own.
    pub fn table_seed(&self) -> Option<u64> {
        self.0.is_some().then(|| self.random())
    }

    /// The state of a hash with a random seed, so that no caller can choose keys that collide. Equal drivers give equal hashes.
    pub fn hash_state(&self) -> SeedableRandomState {
        let shared = self.0.as_ref().map_or_else(SharedSeed::global_random, |_| SharedSeed::global_fixed());
        SeedableRandomState::with_seed(self.random(), shared)
    }

    /// Puts items into a random order.
    pub fn shuffle<T>(&self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            // The remainder favours small numbers by less than one in 2^50.
            items.swap(last, (self.random() % (last as u64 + 1)) as usize);
        }
    }
}

async fn within<F: Future>(sleep: impl Fn() -> Sleep, future: F) -> Result<F::Output, Elapsed> {
    let (mut pause, mut future) = (pin!(None), pin!(future));
    std::future::poll_fn(move |cx| {
        let had_budget = coop::has_budget_remaining();
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        if pause.is_none() {
            pause.set(Some(sleep()));
        }
        let mut pause = pause.as_mut().as_pin_mut().expect("it has begun");
        // A future that uses up the budget of its task each time, as one that reads without end, must not hold up its timeout.
        let elapsed = if had_budget && !coop::has_budget_remaining() {
            pin!(coop::unconstrained(pause.as_mut())).poll(cx)
        } else {
            pause.as_mut().poll(cx)
        };
        elapsed.map(|()| Err(Elapsed))
    })
    .await
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("Runtime(tokio)"),
            Some(driver) => f.debug_tuple("Runtime").field(driver).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_future_in_time_is_answered_and_one_that_is_late_is_not() {
        let runtime = Runtime::tokio();
        let started = runtime.now();
        let early = runtime.timeout(Duration::from_secs(2), runtime.sleep(Duration::from_secs(1))).await;
        let late = runtime.timeout_at(started + Duration::from_secs(5), std::future::pending::<()>()).await;
        assert_eq!((early, late), (Ok(()), Err(Elapsed)));
        assert_eq!(runtime.now() - started, Duration::from_secs(5));
        assert_eq!(runtime.timeout(Duration::ZERO, std::future::ready(7)).await, Ok(7));
    }

    #[test]
    fn a_future_that_is_ready_needs_no_runtime() {
        let runtime = Runtime::tokio();
        let ready = pin!(runtime.timeout(Duration::ZERO, std::future::ready(7)));
        assert_eq!(ready.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(7)));
    }

    #[tokio::test]
    async fn a_future_that_never_waits_is_ended_in_time() {
        let runtime = Runtime::tokio();
        let busy = async {
            loop {
                coop::consume_budget().await;
            }
        };
        let in_time = runtime.timeout(Duration::from_millis(5), busy);
        let ended: Result<(), Elapsed> =
            tokio::time::timeout(Duration::from_secs(5), in_time).await.expect("it ends");
        assert_eq!(ended, Err(Elapsed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_without_end_does_not_overflow() {
        let runtime = Runtime::tokio();
        let waited = runtime.timeout(Duration::from_secs(1), runtime.sleep(Duration::MAX)).await;
        assert_eq!(waited, Err(Elapsed));
    }

    #[test]
    fn drawn_numbers_lie_within_their_bounds_and_a_shuffle_loses_nothing() {
        let runtime = Runtime::tokio();
        assert!((0..1_000).all(|_| (0.0..1.0).contains(&runtime.random_share())));
        let mut items: Vec<u32> = (0..100).collect();
        runtime.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
