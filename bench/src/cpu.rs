//! CPU time: on a busy machine, wall time also tells of its neighbours.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds that this thread has run.
pub fn thread_cpu_ns() -> f64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Nanoseconds that all threads of this process have run, those that have ended included.
pub fn process_cpu_ns() -> f64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

fn nanoseconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
