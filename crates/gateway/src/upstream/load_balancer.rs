//! Which of a route's upstreams gets the next request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::{SmallVec, smallvec};
use spile_core::Micros;

use super::address::Upstream;
use super::endpoint::{Endpoint, Outstanding};
use crate::limit::{PlaceHolder, enter_any};
use crate::refusal::Refusal;
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
    /// Requests so far.
    turn: AtomicUsize,
    /// Repeats so far. They have turns of their own: both together would fall on the same upstreams again and again.
    repeat_turn: AtomicUsize,
}

/// Upstreams for one attempt, the best one first.
pub(crate) type Picks = SmallVec<[usize; 4]>;

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
        let (turn, repeat_turn) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { endpoints, balance: route.balance, turn, repeat_turn }
    }

    pub(crate) fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// The upstreams that the next attempt may go to, as good as each other but for how busy they are, the best one first.
    /// Those that were tried are left out, and so are those that are not well, unless there are no others: a try is better
    /// than none.
    pub(crate) fn pick(&self, tried: &[usize], now: Micros) -> Picks {
        let count = self.endpoints.len();
        if count == 1 {
            return smallvec![0];
        }
        let rank = |index: usize| (tried.contains(&index), !self.endpoints[index].health.is_well(now));
        let ranks: SmallVec<[(bool, bool); 8]> = (0..count).map(rank).collect();
        let best = ranks.iter().min();
        let turns = if tried.is_empty() { &self.turn } else { &self.repeat_turn };
        let best = (0..count).filter(|&index| Some(&ranks[index]) == best);
        self.sorted(best, turns.fetch_add(1, Ordering::Relaxed))
    }

    /// The least busy first, in turn among equals: the share of an upstream that is left out goes to all others alike.
    fn sorted(&self, best: impl Iterator<Item = usize>, turn: usize) -> Picks {
        let load = |index: usize| {
            let endpoint = &self.endpoints[index];
            let outstanding = if self.balance == Balance::RoundRobin { 0 } else { endpoint.outstanding() };
            ((endpoint.is_full(), outstanding), index)
        };
        let mut loads: SmallVec<[_; 8]> = best.map(load).collect();
        loads.sort_unstable();
        let equal = loads.iter().take_while(|(load, _)| *load == loads[0].0).count();
        loads[..equal].rotate_left(turn % equal.max(1));
        loads.into_iter().map(|(_, index)| index).collect()
    }

    /// A place at the first of these upstreams, or at whichever has one first if there is a cap. Says at which.
    pub(crate) async fn enter(
        &self,
        picks: &[usize],
        caller: &PlaceHolder,
    ) -> Result<(usize, Outstanding), Refusal> {
        let queue = |&index: &usize| Some((index, self.endpoints[index].queue()?));
        let queues: SmallVec<[_; 4]> = picks.iter().filter_map(queue).collect();
        let (index, permit) = enter_any(&queues, caller).await.map_err(|_| Refusal::Busy)?;
        Ok((index, self.endpoints[index].occupy(Some(permit))))
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

    fn first(pool: &Pool, tried: &[usize]) -> usize {
        pool.pick(tried, NOW)[0]
    }

    fn take_out(pool: &Pool, index: usize) {
        let check = HealthCheck::new(http::uri::PathAndQuery::from_static("/"));
        (0..3).for_each(|_| pool.endpoints()[index].health.checked(false, &check));
    }

    #[test]
    fn each_upstream_gets_its_turn() {
        let pool = pool(Balance::RoundRobin);
        let picks: Vec<_> = (0..6).map(|_| first(&pool, &[])).collect();
        assert_eq!(picks, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn the_least_busy_upstream_is_asked_first() {
        let pool = pool(Balance::LeastOutstanding);
        let busy = (pool.endpoints()[0].occupy(None), pool.endpoints()[2].occupy(None));
        assert_eq!((0..3).map(|_| first(&pool, &[])).collect::<Vec<_>>(), [1, 1, 1]);
        drop(busy);
        assert_eq!(pool.endpoints()[0].outstanding(), 0, "what is over no longer counts");
    }

    #[test]
    fn a_second_attempt_goes_elsewhere() {
        let pool = pool(Balance::RoundRobin);
        assert_ne!(first(&pool, &[0]), 0);
        assert_eq!(first(&pool, &[1, 2]), 0);
        assert_eq!(pool.pick(&[0, 1, 2], NOW).len(), 3, "where all were tried, each may be tried again");
    }

    #[test]
    fn the_share_of_a_dead_upstream_goes_to_all_others_alike() {
        for balance in [Balance::RoundRobin, Balance::LeastOutstanding] {
            for dead in 0..3 {
                let pool = pool(balance);
                take_out(&pool, dead);
                let mut asked = [0; 3];
                (0..120).for_each(|_| asked[first(&pool, &[])] += 1);
                asked.sort_unstable();
                assert_eq!(asked, [0, 60, 60], "{balance:?}");
            }
        }
    }

    #[test]
    fn repeats_of_what_one_upstream_failed_go_to_all_others_alike() {
        let pool = pool(Balance::RoundRobin);
        let mut asked = [0; 3];
        for _ in 0..120 {
            let index = first(&pool, &[]);
            asked[if index == 0 { first(&pool, &[0]) } else { index }] += 1;
        }
        assert_eq!(asked, [0, 60, 60]);
    }

    #[test]
    fn an_upstream_that_is_not_well_is_left_out_unless_none_is() {
        let pool = pool(Balance::RoundRobin);
        take_out(&pool, 0);
        assert!((0..6).all(|_| !pool.pick(&[], NOW).contains(&0)));
        take_out(&pool, 1);
        take_out(&pool, 2);
        assert!((0..6).any(|_| first(&pool, &[]) == 0), "a try is better than none");
    }
}
