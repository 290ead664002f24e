//! How much is asked of one bucket here.

use spile_core::{Amount, Micros};

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
    amount: Amount,
}

impl Demand {
    /// Counts a question. A window is as long as a lease.
    pub(super) fn add(&mut self, cost: Amount, now: Micros, window_us: u64) {
        // A clock that has been stepped back starts a new window too.
        let elapsed = now.get().checked_sub(self.began.get());
        if elapsed.is_none_or(|us| us >= window_us) {
            let is_next = elapsed.is_some_and(|us| us < 2 * window_us);
            self.before = if is_next { self.now } else { WindowSum::default() };
            (self.began, self.now) = (now, WindowSum::default());
        }
        self.now.questions = self.now.questions.saturating_add(1);
        self.now.amount = self.now.amount + cost;
    }

    /// True if there was a question in this window or the one before it.
    pub(super) const fn is_recent(&self, now: Micros, window_us: u64) -> bool {
        now.since_us(self.began) < 2 * window_us
    }

    /// Questions in a window.
    pub(super) const fn questions(&self) -> u32 {
        if self.now.questions > self.before.questions { self.now.questions } else { self.before.questions }
    }

    /// The amount asked for in a window.
    pub(super) fn amount(&self) -> Amount {
        self.now.amount.max(self.before.amount)
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
            demand.add(Amount::from(2), at(ms), 100_000);
        }
        assert_eq!((demand.questions(), demand.amount()), (50, Amount::from(100)));
        demand.add(Amount::from(2), at(210), 100_000);
        assert_eq!((demand.questions(), demand.amount()), (50, Amount::from(100)));
        demand.add(Amount::from(2), at(320), 100_000);
        assert_eq!((demand.questions(), demand.amount()), (1, Amount::from(2)));
    }

    #[test]
    fn after_a_pause_or_a_step_back_nothing_is_left_of_it() {
        for ms in [500, 10] {
            let mut demand = Demand::default();
            demand.add(Amount::from(50), at(100), 100_000);
            demand.add(Amount::from(1), at(ms), 100_000);
            assert_eq!(demand.amount(), 1);
        }
    }
}
