//! When the machine kept this process waiting, so that its stalls are not taken for the limiter's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Clock, Micros, SystemClock};
use spile_testkit::wait;

const NAP: Duration = Duration::from_millis(1);

/// What a thread may oversleep on a machine that has time for it.
const USUAL: Duration = Duration::from_millis(2);

/// The CPU time of this process is looked at once in so many naps: it takes a file per thread.
const LOOK_EVERY: u32 = 10;

/// A stretch of time in which a thread that only wanted to wake up was not let.
#[derive(Clone, Copy, Debug)]
struct Stall {
    from: Micros,
    to: Micros,
    /// What of it was somebody else's doing. While this process itself uses the CPU, the machine does not stand still.
    excused: Duration,
}

/// The stalls of one trial.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls(Vec<Stall>);

impl Stalls {
    /// How long the machine kept this process from working between two moments.
    pub(crate) fn between(&self, from: Micros, to: Micros) -> Duration {
        let shared = |stall: &Stall| {
            let overlap = stall.to.min(to).since_us(stall.from.max(from));
            Duration::from_micros(overlap).min(stall.excused)
        };
        self.0.iter().map(shared).sum()
    }
}

/// A thread that does nothing but wake up, and notices when it wakes late. It shares no runtime with the callers: a
/// limiter that blocks theirs does not show here, and so is not excused.
pub(crate) struct StallWatch {
    stop: Arc<AtomicBool>,
    stalls: Arc<Mutex<Stalls>>,
    thread: Option<JoinHandle<()>>,
}

impl StallWatch {
    pub(crate) fn start() -> Self {
        let (stop, stalls) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Stalls>>::default());
        let watch = { (Arc::clone(&stop), Arc::clone(&stalls)) };
        let thread = std::thread::spawn(move || watch_for_stalls(&watch.0, &watch.1));
        Self { stop, stalls, thread: Some(thread) }
    }

    /// Those that it has seen.
    pub(crate) fn seen(&self) -> Stalls {
        self.stalls.lock().clone()
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn watch_for_stalls(stop: &AtomicBool, stalls: &Mutex<Stalls>) {
    let clock = SystemClock::new();
    let (mut naps, mut used) = (0, cpu_time());
    while !stop.load(Ordering::Relaxed) {
        let from = clock.now();
        wait::lasting(NAP);
        let to = clock.now();
        let overslept = Duration::from_micros(to.since_us(from)).saturating_sub(NAP);
        naps += 1;
        if overslept <= USUAL && naps < LOOK_EVERY {
            continue;
        }
        let used_now = cpu_time();
        if overslept > USUAL {
            // What was used a little before the stall counts too, which excuses less, never more.
            let excused = overslept.saturating_sub(used_now.saturating_sub(used));
            stalls.lock().0.push(Stall { from, to, excused });
        }
        (naps, used) = (0, used_now);
    }
}

/// The CPU time that the threads of this process have used, to the microsecond.
fn cpu_time() -> Duration {
    let of_thread = |task: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
        let stat = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse().ok()
    };
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux tells of a process's threads");
    Duration::from_nanos(tasks.filter_map(of_thread).sum())
}
