//! Time, tasks, connections and random numbers of one instance.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use spile_core::Clock;
use spile_runtime::{BoxFuture, ByteStream, DialTarget, Driver, StopTask};

use super::sleep::Pause;
use super::{Nanos, Scheduler};
use crate::network;

/// The runtime of one instance.
pub struct InstanceDriver {
    scheduler: Scheduler,
    instance: usize,
    clock: Arc<dyn Clock>,
}

impl InstanceDriver {
    /// The runtime of this instance, with its wall clock.
    pub fn new(scheduler: Scheduler, instance: usize, clock: Arc<dyn Clock>) -> Self {
        Self { scheduler, instance, clock }
    }
}

impl fmt::Debug for InstanceDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceDriver").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// The moment from which virtual time is counted. Only differences are seen, so that it need not be the same in each run.
#[expect(clippy::disallowed_methods, reason = "an `Instant` can only be made from the real one")]
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// The time of a clock that is faster by this much.
const fn drifted(now: Nanos, ppm: i64) -> Nanos {
    now.saturating_add_signed(now.cast_signed() / 1_000_000 * ppm)
}

impl Driver for InstanceDriver {
    fn now(&self) -> Instant {
        let state = self.scheduler.0.lock();
        origin() + Duration::from_nanos(drifted(state.now, state.instances[self.instance].drift_ppm))
    }

    fn wall_time(&self) -> Duration {
        Duration::from_micros(self.clock.wall().get())
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<()> {
        let local =
            u64::try_from(deadline.saturating_duration_since(origin()).as_nanos()).unwrap_or(u64::MAX);
        let until = {
            let state = self.scheduler.0.lock();
            let drift_ppm = state.instances[self.instance].drift_ppm;
            let missing = local.saturating_sub(drifted(state.now, drift_ppm));
            // Rounded up, so that it is never early by its own clock.
            let slower =
                missing.saturating_add(missing / 1_000_000 * drift_ppm.unsigned_abs()).saturating_add(1_000);
            state.now.saturating_add(if missing == 0 { 0 } else { slower })
        };
        Box::pin(Pause::new(self.scheduler.clone(), until))
    }

    fn spawn(&self, task: BoxFuture<()>) -> StopTask {
        let (scheduler, number) = (self.scheduler.clone(), self.scheduler.spawn(self.instance, true, task));
        Box::new(move || {
            if let Some(number) = number {
                scheduler.stop(number);
            }
        })
    }

    fn random(&self) -> u64 {
        self.scheduler.random()
    }

    fn connect(&self, target: DialTarget<'_>) -> BoxFuture<std::io::Result<Box<dyn ByteStream>>> {
        let node = match target {
            DialTarget::Tcp(host, _) => host.strip_prefix("node").and_then(|number| number.parse().ok()),
            DialTarget::Unix(_) => None,
        };
        match node {
            Some(node) => Box::pin(network::connect(self.scheduler.clone(), self.instance, node)),
            None => Box::pin(async { Err(std::io::ErrorKind::NotFound.into()) }),
        }
    }
}
