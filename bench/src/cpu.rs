//! CPU time: on a busy machine, wall time also tells of its neighbours.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds that this thread has run.
pub fn thread_cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
