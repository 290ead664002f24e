//! Which of a route's upstreams gets the next request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use spile_core::Micros;

use super::address::Upstream;
use super::endpoint::Endpoint;
use crate::route::Route;

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
    /// The upstreams of this route. Those that were there `before` are the same ones still.
    pub(crate) fn new(route: &Route, before: Option<&Self>) -> Self {
        let endpoint = |upstream: &Upstream| {
            let mut standing = before.into_iter().flat_map(Self::endpoints);
            let standing = standing.find(|endpoint| endpoint.is(upstream, route.concurrency));
            standing
                .cloned()
                .unwrap_or_else(|| Arc::new(Endpoint::new(upstream.clone(), &route.name, route.concurrency)))
        };
        let endpoints: Box<[Arc<Endpoint>]> = route.upstreams.iter().map(endpoint).collect();
        if route.health.is_none() {
            endpoints.iter().for_each(|endpoint| endpoint.health.unchecked());
        }
        Self { endpoints, balance: route.balance, turn: AtomicUsize::new(0) }
    }

    pub(crate) fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// The index of the endpoint for the next attempt. Those that were tried come last, and so do those that are
    /// not well: where nobody is, a try is better than none.
    pub(crate) fn pick(&self, tried: &[usize], now: Micros) -> usize {
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
        let unwell = |index: usize| !self.endpoints[index].health.is_well(now);
        in_turn.min_by_key(|&index| (tried.contains(&index), unwell(index), load(index))).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::HealthCheck;

    const NOW: Micros = Micros::from_secs(1_000);

    fn pool(balance: Balance) -> Pool {
        let upstream = |port| format!("http://127.0.0.1:{port}").parse().unwrap();
        let route = Route::new("/", (9001..9004).map(upstream)).unwrap();
        Pool::new(&route.balance(balance), None)
    }

    #[test]
    fn each_upstream_gets_its_turn() {
        let pool = pool(Balance::RoundRobin);
        let picks: Vec<_> = (0..6).map(|_| pool.pick(&[], NOW)).collect();
        assert_eq!(picks, [0, 1, 2, 0, 1, 2]);
    }

    #[tokio::test]
    async fn the_least_busy_upstream_is_asked_first() {
        let pool = pool(Balance::LeastOutstanding);
        let busy = (pool.endpoints()[0].enter("a").await, pool.endpoints()[2].enter("a").await);
        assert_eq!((0..3).map(|_| pool.pick(&[], NOW)).collect::<Vec<_>>(), [1, 1, 1]);
        drop(busy);
        assert_eq!(pool.endpoints()[0].outstanding(), 0, "what is over no longer counts");
    }

    #[test]
    fn a_second_attempt_goes_elsewhere() {
        let pool = pool(Balance::RoundRobin);
        assert_eq!(pool.pick(&[0], NOW), 1);
        assert_eq!(pool.pick(&[1, 2], NOW), 0);
    }

    #[test]
    fn an_upstream_that_is_not_well_is_left_out_until_nobody_is() {
        let pool = pool(Balance::RoundRobin);
        let check = HealthCheck::new(http::uri::PathAndQuery::from_static("/"));
        let fail = |index: usize| (0..3).for_each(|_| pool.endpoints()[index].health.checked(false, &check));
        fail(0);
        assert!((0..6).all(|_| pool.pick(&[], NOW) != 0));
        fail(1);
        fail(2);
        assert!((0..6).any(|_| pool.pick(&[], NOW) == 0), "a try is better than none");
    }
}
