//! Which of a route's upstreams gets the next request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::address::Upstream;
use super::endpoint::Endpoint;

/// How requests are spread over a route's upstreams.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Balance {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// Whichever has the fewest requests under way; in turn among equals.
    LeastOutstanding,
}

/// The upstreams of one route.
#[derive(Debug)]
pub(crate) struct Pool {
    endpoints: Box<[Arc<Endpoint>]>,
    balance: Balance,
    turn: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(upstreams: impl IntoIterator<Item = Upstream>, balance: Balance) -> Self {
        let endpoints = upstreams.into_iter().map(|upstream| Arc::new(Endpoint::new(upstream))).collect();
        Self { endpoints, balance, turn: AtomicUsize::new(0) }
    }

    pub(crate) fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// The index of the endpoint for the next attempt. Those that were tried come last, and so do those that are
    /// not well: where nobody is, a try is better than none.
    pub(crate) fn pick(&self, tried: &[usize]) -> usize {
        let count = self.endpoints.len();
        if count == 1 {
            return 0;
        }
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..count).map(|step| (start + step) % count);
        let load = |index: usize| match self.balance {
            Balance::RoundRobin => 0,
            Balance::LeastOutstanding => self.endpoints[index].outstanding(),
        };
        in_turn.min_by_key(|&index| (tried.contains(&index), load(index))).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(balance: Balance) -> Pool {
        let upstream = |port| format!("http://127.0.0.1:{port}").parse().unwrap();
        Pool::new((9001..9004).map(upstream), balance)
    }

    #[test]
    fn each_upstream_gets_its_turn() {
        let pool = pool(Balance::RoundRobin);
        let picks: Vec<_> = (0..6).map(|_| pool.pick(&[])).collect();
        assert_eq!(picks, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn the_least_busy_upstream_is_asked_first() {
        let pool = pool(Balance::LeastOutstanding);
        let _busy = [pool.endpoints()[0].enter(), pool.endpoints()[2].enter()];
        assert_eq!((0..3).map(|_| pool.pick(&[])).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn a_second_attempt_goes_elsewhere() {
        let pool = pool(Balance::RoundRobin);
        assert_eq!(pool.pick(&[0]), 1);
        assert_eq!(pool.pick(&[1, 2]), 0);
    }

    #[test]
    fn what_is_over_no_longer_counts() {
        let pool = pool(Balance::LeastOutstanding);
        drop(pool.endpoints()[0].enter());
        assert_eq!(pool.endpoints()[0].outstanding(), 0);
    }
}
