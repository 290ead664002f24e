//! How much is asked of one bucket here.

use spile_core::Micros;

/// Questions and tokens of this window and the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    began: Micros,
    now: WindowSum,
    before: WindowSum,
}

#[derive(Clone, Copy, Debug, Default)]
struct WindowSum {
    questions: u32,
    tokens: u64,
}

impl Demand {
    /// Counts a question. A window is as long as a lease.
    pub(super) fn add(&mut self, cost: u32, now: Micros, window_us: u64) {
        // A clock that has been stepped back starts a new window too.
        let elapsed = now.get().checked_sub(self.began.get());
        if elapsed.is_none_or(|us| us >= window_us) {
            let is_next = elapsed.is_some_and(|us| us < 2 * window_us);
            self.before = if is_next { self.now } else { WindowSum::default() };
            (self.began, self.now) = (now, WindowSum::default());
        }
        self.now.questions = self.now.questions.saturating_add(1);
        self.now.tokens = self.now.tokens.saturating_add(cost.into());
    }

    /// True if there was a question in this window or the one before it.
    pub(super) const fn is_recent(&self, now: Micros, window_us: u64) -> bool {
        now.since_us(self.began) < 2 * window_us
    }

    /// Questions in a window.
    pub(super) const fn questions(&self) -> u32 {
        if self.now.questions > self.before.questions { self.now.questions } else { self.before.questions }
    }

    /// Tokens asked for in a window.
    pub(super) const fn tokens(&self) -> u64 {
        if self.now.tokens > self.before.tokens { self.now.tokens } else { self.before.tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Micros {
        Micros::new(1_000 * ms)
    }

    #[test]
    fn the_larger_of_the_last_two_windows_counts() {
        let mut demand = Demand::default();
        for ms in 100..150 {
            demand.add(2, at(ms), 100_000);
        }
        assert_eq!((demand.questions(), demand.tokens()), (50, 100));
        demand.add(2, at(210), 100_000);
        assert_eq!((demand.questions(), demand.tokens()), (50, 100));
        demand.add(2, at(320), 100_000);
        assert_eq!((demand.questions(), demand.tokens()), (1, 2));
    }

    #[test]
    fn after_a_pause_or_a_step_back_nothing_is_left_of_it() {
        for ms in [500, 10] {
            let mut demand = Demand::default();
            demand.add(50, at(100), 100_000);
            demand.add(1, at(ms), 100_000);
            assert_eq!(demand.tokens(), 1);
        }
    }
}
