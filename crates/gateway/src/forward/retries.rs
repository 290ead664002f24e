//! When a request is retried. A request must not run twice unexpectedly, and retries must not overload a failing upstream.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::upstream::AttemptError;

/// Each request pays for a fifth of a retry.
const DEPOSIT: u32 = 20;
/// The cost of a retry.
const RETRY_COST: u32 = 100;
/// At most ten retries can be saved up.
const MAX_BALANCE: u32 = 10 * RETRY_COST;

/// A budget that allows retries for one request in five, and a few more in a burst.
#[derive(Debug)]
pub(crate) struct RetryBudget(AtomicU32);

impl RetryBudget {
    /// Adds the share of one request.
    pub(crate) fn deposit(&self) {
        // The budget is usually full. Then nothing is written, so no cache line moves between cores.
        if self.0.load(Ordering::Relaxed) < MAX_BALANCE {
            self.0.fetch_add(DEPOSIT, Ordering::Relaxed);
        }
    }

    /// Takes a retry out of the budget. False if the budget is exhausted.
    pub(crate) fn withdraw(&self) -> bool {
        let take = |held: u32| held.checked_sub(RETRY_COST);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(MAX_BALANCE))
    }
}

/// The retries of one request so far.
#[derive(Debug, Default)]
pub(crate) struct RetryState {
    /// Retries that the route's limit and the budget count.
    retries_made: u8,
    /// Whether a pooled connection turned out to be closed before any of the request was sent, so that it was sent over
    /// a new one. This does not count as a retry.
    reconnected: bool,
    /// Whether the request was retried although an upstream may have run it.
    repeated_after_send: bool,
}

/// An attempt without a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedAttempt {
    pub(crate) why: AttemptError,
    /// Whether a pooled connection closed as soon as it was used.
    pub(crate) stale: bool,
    /// Whether none of the request's body has been consumed.
    pub(crate) body_unused: bool,
    /// Whether the request may safely run twice: its method is idempotent and it has no body.
    pub(crate) idempotent: bool,
}

/// Which upstream a request is retried at, over a new connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RetryTarget {
    SameUpstream,
    OtherUpstream,
}

impl RetryState {
    /// Whether and where the request is retried after this attempt.
    ///
    /// A request that may have run is retried only once, even if the route allows more: a request that crashes upstreams
    /// must not be passed from one to the next.
    pub(crate) fn next(
        &mut self,
        failed: FailedAttempt,
        retries: u8,
        budget: &RetryBudget,
    ) -> Option<RetryTarget> {
        let FailedAttempt { why, stale, body_unused, idempotent } = failed;
        if stale && body_unused && why.did_not_run() && !self.reconnected {
            self.reconnected = true;
            return Some(RetryTarget::SameUpstream);
        }
        let ran = !why.did_not_run();
        let safe = match why {
            AttemptError::Closed { sent: true } => idempotent && !self.repeated_after_send,
            _ => body_unused && !ran,
        };
        if !safe || self.retries_made >= retries || !budget.withdraw() {
            return None;
        }
        self.retries_made += 1;
        self.repeated_after_send |= ran;
        Some(if stale { RetryTarget::SameUpstream } else { RetryTarget::OtherUpstream })
    }

    /// Retries that counted.
    pub(crate) const fn retries_made(&self) -> u8 {
        self.retries_made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: AttemptError = AttemptError::Closed { sent: true };
    const UNSENT: AttemptError = AttemptError::Closed { sent: false };

    fn failed(why: AttemptError, stale: bool) -> FailedAttempt {
        FailedAttempt { why, stale, body_unused: true, idempotent: true }
    }

    /// The retries of a request whose attempts all fail in the same way.
    fn path_of(failed: FailedAttempt, retries: u8) -> Vec<RetryTarget> {
        let (mut retries_so_far, budget) = (RetryState::default(), RetryBudget::default());
        std::iter::from_fn(|| retries_so_far.next(failed, retries, &budget)).collect()
    }

    #[test]
    fn without_retries_only_what_was_not_sent_goes_on_and_once() {
        use AttemptError::{InvalidResponse, NotProcessed, RequestBody, TimedOut, Unreachable};
        assert_eq!(path_of(failed(UNSENT, true), 0), [RetryTarget::SameUpstream]);
        for why in [SENT, UNSENT, NotProcessed, TimedOut, RequestBody, Unreachable, InvalidResponse] {
            assert!(path_of(failed(why, false), 0).is_empty(), "{why:?}");
        }
        assert!(path_of(failed(SENT, true), 0).is_empty());
    }

    #[test]
    fn what_may_have_run_is_repeated_once_and_only_if_it_does_no_harm() {
        assert_eq!(path_of(failed(SENT, true), 5), [RetryTarget::SameUpstream]);
        assert_eq!(path_of(failed(SENT, false), 5), [RetryTarget::OtherUpstream]);
        for stale in [false, true] {
            assert!(path_of(FailedAttempt { idempotent: false, ..failed(SENT, stale) }, 5).is_empty());
        }
        for why in [AttemptError::TimedOut, AttemptError::InvalidResponse, AttemptError::RequestBody] {
            assert!(path_of(failed(why, false), 5).is_empty(), "{why:?}");
        }
    }

    #[test]
    fn what_has_not_run_is_repeated_as_often_as_the_route_says_whatever_it_does() {
        for why in [UNSENT, AttemptError::NotProcessed, AttemptError::Unreachable] {
            let harmful = FailedAttempt { idempotent: false, ..failed(why, false) };
            assert_eq!(path_of(harmful, 3), [RetryTarget::OtherUpstream; 3], "{why:?}");
            assert!(
                path_of(FailedAttempt { body_unused: false, ..harmful }, 3).is_empty(),
                "its body is gone"
            );
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
