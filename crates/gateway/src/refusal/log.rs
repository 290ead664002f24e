//! Logs the 5xx responses that the gateway made itself, with their cause, at a bounded rate.

use parking_lot::Mutex;
use spile_core::Micros;

/// How many responses of one second are logged. The others are counted.
const MAX_PER_SECOND: u32 = 10;

/// The budget for log lines about 5xx responses.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<LoggedSecond>);

#[derive(Debug, Default)]
struct LoggedSecond {
    second: u64,
    logged: u32,
    suppressed: u64,
}

impl RefusalLog {
    /// Logs a response, if not too many of this second are logged already.
    #[cold]
    pub(crate) fn record(&self, now: Micros, log: impl FnOnce()) {
        let mut budget = self.0.lock();
        budget.begin_second(now);
        if budget.logged < MAX_PER_SECOND {
            budget.logged += 1;
            drop(budget);
            log();
        } else {
            budget.suppressed += 1;
        }
    }

    /// Reports how many responses were not logged, once their second is over.
    pub(crate) fn tell_suppressed(&self, now: Micros) {
        self.0.lock().begin_second(now);
    }
}

impl LoggedSecond {
    fn begin_second(&mut self, now: Micros) {
        let second = now.get() / 1_000_000;
        if second == self.second {
            return;
        }
        if self.suppressed > 0 {
            tracing::warn!(
                target: "spile::gateway", not_logged = self.suppressed,
                "more responses with 5xx were made, of which only {MAX_PER_SECOND} in a second are logged"
            );
        }
        *self = Self { second, logged: 0, suppressed: 0 };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_storm_of_refusals_writes_a_few_lines_a_second() {
        let (log, lines) = (RefusalLog::default(), Cell::new(0));
        for millis in 0..3_000 {
            let now = Micros::from_secs(100) + Duration::from_millis(millis);
            (0..100).for_each(|_| log.record(now, || lines.set(lines.get() + 1)));
        }
        assert_eq!(lines.get(), 3 * MAX_PER_SECOND);
        assert_eq!(log.0.lock().suppressed, 100_000 - u64::from(MAX_PER_SECOND));
        log.tell_suppressed(Micros::from_secs(103));
        assert_eq!(log.0.lock().suppressed, 0, "they were told of");
    }
}
