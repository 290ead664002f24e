//! What may be sent once more, and how much of it, so that nothing runs twice by surprise and a failing upstream is not
//! buried under repeats.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::upstream::Unanswered;

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

/// What has been repeated of one request so far.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Those that count as a retry.
    counted: u8,
    /// Whether a kept connection closed before it took any of the request, which then went to a fresh one.
    moved_on: bool,
    /// Whether it was repeated though an upstream may have run it.
    risked: bool,
}

/// How an attempt ended that came to nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub(crate) why: Unanswered,
    /// Whether the connection was a kept one that closed as soon as the request was on its way.
    pub(crate) stale: bool,
    /// Whether nothing of the request's body has been used up.
    pub(crate) whole: bool,
    /// Whether running the request twice does no harm: it is idempotent and has no body.
    pub(crate) harmless: bool,
}

/// Where a request goes once more, over a fresh connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Repeat {
    SameUpstream,
    OtherUpstream,
}

impl Repeats {
    /// Whether the request is sent once more after this attempt, and where to.
    ///
    /// What may have run is repeated once altogether, however many retries there are: a request that takes upstreams
    /// down must not be carried from one to the next.
    pub(crate) fn after(&mut self, failed: Failed, retries: u8, budget: &RetryBudget) -> Option<Repeat> {
        let Failed { why, stale, whole, harmless } = failed;
        if stale && whole && why.did_not_run() && !self.moved_on {
            self.moved_on = true;
            return Some(Repeat::SameUpstream);
        }
        let ran = !why.did_not_run();
        let safe = match why {
            Unanswered::Closed { sent: true } => harmless && !self.risked,
            _ => whole && !ran,
        };
        if !safe || self.counted >= retries || !budget.withdraw() {
            return None;
        }
        self.counted += 1;
        self.risked |= ran;
        Some(if stale { Repeat::SameUpstream } else { Repeat::OtherUpstream })
    }

    /// Repeats that counted as a retry.
    pub(crate) const fn counted(&self) -> u8 {
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Unanswered = Unanswered::Closed { sent: true };
    const UNSENT: Unanswered = Unanswered::Closed { sent: false };

    fn failed(why: Unanswered, stale: bool) -> Failed {
        Failed { why, stale, whole: true, harmless: true }
    }

    /// Where a request goes that fails the same way each time.
    fn path_of(failed: Failed, retries: u8) -> Vec<Repeat> {
        let (mut repeats, budget) = (Repeats::default(), RetryBudget::default());
        std::iter::from_fn(|| repeats.after(failed, retries, &budget)).collect()
    }

    #[test]
    fn without_retries_only_what_was_not_sent_goes_on_and_once() {
        use Unanswered::{NotProcessed, Silent, Undelivered, Unreachable, Unreadable};
        assert_eq!(path_of(failed(UNSENT, true), 0), [Repeat::SameUpstream]);
        for why in [SENT, UNSENT, NotProcessed, Silent, Undelivered, Unreachable, Unreadable] {
            assert!(path_of(failed(why, false), 0).is_empty(), "{why:?}");
        }
        assert!(path_of(failed(SENT, true), 0).is_empty());
    }

    #[test]
    fn what_may_have_run_is_repeated_once_and_only_if_it_does_no_harm() {
        assert_eq!(path_of(failed(SENT, true), 5), [Repeat::SameUpstream]);
        assert_eq!(path_of(failed(SENT, false), 5), [Repeat::OtherUpstream]);
        for stale in [false, true] {
            assert!(path_of(Failed { harmless: false, ..failed(SENT, stale) }, 5).is_empty());
        }
        for why in [Unanswered::Silent, Unanswered::Unreadable, Unanswered::Undelivered] {
            assert!(path_of(failed(why, false), 5).is_empty(), "{why:?}");
        }
    }

    #[test]
    fn what_has_not_run_is_repeated_as_often_as_the_route_says_whatever_it_does() {
        for why in [UNSENT, Unanswered::NotProcessed, Unanswered::Unreachable] {
            let harmful = Failed { harmless: false, ..failed(why, false) };
            assert_eq!(path_of(harmful, 3), [Repeat::OtherUpstream; 3], "{why:?}");
            assert!(path_of(Failed { whole: false, ..harmful }, 3).is_empty(), "its body is gone");
        }
    }

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
