//! How many attempts may be repeated, so that a failing upstream is not buried under them.

use std::sync::atomic::{AtomicU32, Ordering};

/// What each request adds: a fifth of a retry.
const DEPOSIT: u32 = 20;
/// What a retry costs.
const PRICE: u32 = 100;
/// Ten retries at once, however long nothing had to be retried.
const MOST: u32 = 10 * PRICE;

/// Lets one request in five be tried again, and a few more in a row.
#[derive(Debug)]
pub(crate) struct RetryBudget(AtomicU32);

impl RetryBudget {
    /// A request was made.
    pub(crate) fn deposit(&self) {
        // Full is the rule: nothing is written then, and no cache line moves between cores.
        if self.0.load(Ordering::Relaxed) < MOST {
            self.0.fetch_add(DEPOSIT, Ordering::Relaxed);
        }
    }

    /// Whether a retry may be made now.
    pub(crate) fn withdraw(&self) -> bool {
        let take = |held: u32| held.checked_sub(PRICE);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(MOST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_five_may_be_tried_again() {
        let budget = RetryBudget::default();
        while budget.withdraw() {}
        for _ in 0..4 {
            budget.deposit();
            assert!(!budget.withdraw());
        }
        budget.deposit();
        assert!(budget.withdraw() && !budget.withdraw());
    }

    #[test]
    fn a_quiet_day_saves_up_ten_retries_at_most() {
        let budget = RetryBudget::default();
        (0..10_000).for_each(|_| budget.deposit());
        assert_eq!((0..100).filter(|_| budget.withdraw()).count(), 10);
    }
}
