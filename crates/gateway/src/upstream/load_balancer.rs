//! Chooses the upstream of each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::{SmallVec, smallvec};
use spile_core::Micros;

use super::address::Upstream;
use super::endpoint::{InFlightRequest, UpstreamEndpoint};
use crate::limit::{CallerKey, acquire_any};
use crate::refusal::GatewayRefusal;
use crate::route::Route;

/// How requests are spread over a route's upstreams.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Balance {
    /// The upstreams take turns.
    #[default]
    RoundRobin,
    /// The upstream with the fewest requests in flight. Equal ones take turns.
    LeastOutstanding,
}

/// Spreads the requests of one route over its upstreams.
#[derive(Debug)]
pub(crate) struct LoadBalancer {
    endpoints: Box<[Arc<UpstreamEndpoint>]>,
    balance: Balance,
    /// The number of requests so far.
    turn: AtomicUsize,
    /// The number of retries so far. With one counter for both, the same upstreams could get all retries.
    repeat_turn: AtomicUsize,
}

/// Indexes of upstreams for one attempt, the best first.
pub(crate) type Candidates = SmallVec<[usize; 4]>;

impl LoadBalancer {
    /// A balancer for this route. Upstreams that were there `before` keep their state.
    pub(crate) fn new(route: &Route, before: Option<&Self>) -> Self {
        let endpoint = |upstream: &Upstream| {
            let mut checkout = before.into_iter().flat_map(Self::endpoints);
            let checkout = checkout.find(|endpoint| endpoint.matches(upstream, route.concurrency));
            checkout.cloned().unwrap_or_else(|| {
                Arc::new(UpstreamEndpoint::new(upstream.clone(), &route.name, route.concurrency))
            })
        };
        let endpoints: Box<[Arc<UpstreamEndpoint>]> = route.upstreams.iter().map(endpoint).collect();
        if route.health.is_none() {
            endpoints.iter().for_each(|endpoint| endpoint.health.reset_checks());
        }
        let (turn, repeat_turn) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { endpoints, balance: route.balance, turn, repeat_turn }
    }

    pub(crate) fn endpoints(&self) -> &[Arc<UpstreamEndpoint>] {
        &self.endpoints
    }

    /// The upstreams that the next attempt may go to, the best first. They differ only in how busy they are. Those that were tried and
    /// those that are unhealthy are left out, unless there are no others.
    pub(crate) fn pick(&self, tried: &[usize], now: Micros) -> Candidates {
        let count = self.endpoints.len();
        if count == 1 {
            return smallvec![0];
        }
        let rank = |index: usize| (tried.contains(&index), !self.endpoints[index].health.is_healthy(now));
        let ranks: SmallVec<[(bool, bool); 8]> = (0..count).map(rank).collect();
        let best = ranks.iter().min();
        let turns = if tried.is_empty() { &self.turn } else { &self.repeat_turn };
        let best = (0..count).filter(|&index| Some(&ranks[index]) == best);
        self.sorted(best, turns.fetch_add(1, Ordering::Relaxed))
    }

    /// Sorts by load. Equal upstreams take turns, so that the share of one that is left out goes to all others alike.
    fn sorted(&self, best: impl Iterator<Item = usize>, turn: usize) -> Candidates {
        let load = |index: usize| {
            let endpoint = &self.endpoints[index];
            let in_flight = if self.balance == Balance::RoundRobin { 0 } else { endpoint.in_flight() };
            ((endpoint.is_full(), in_flight), index)
        };
        let mut loads: SmallVec<[_; 8]> = best.map(load).collect();
        loads.sort_unstable();
        let equal = loads.iter().take_while(|(load, _)| *load == loads[0].0).count();
        loads[..equal].rotate_left(turn % equal.max(1));
        loads.into_iter().map(|(_, index)| index).collect()
    }

    /// Waits for a permit at one of these upstreams, and returns which one granted it.
    pub(crate) async fn acquire(
        &self,
        candidates: &[usize],
        caller: &CallerKey,
    ) -> Result<(usize, InFlightRequest), GatewayRefusal> {
        let queue = |&index: &usize| Some((index, self.endpoints[index].queue()?));
        let queues: SmallVec<[_; 4]> = candidates.iter().filter_map(queue).collect();
        let (index, permit) = acquire_any(&queues, caller).await.map_err(|_| GatewayRefusal::Busy)?;
        Ok((index, self.endpoints[index].start_request(Some(permit))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::HealthCheck;

    const NOW: Micros = Micros::from_secs(1_000);

    fn balancer(balance: Balance) -> LoadBalancer {
        let upstream = |port| format!("http://127.0.0.1:{port}").parse().unwrap();
        let route = Route::new("/", (9001..9004).map(upstream)).unwrap();
        LoadBalancer::new(&route.balance(balance), None)
    }

    fn first(balancer: &LoadBalancer, tried: &[usize]) -> usize {
        balancer.pick(tried, NOW)[0]
    }

    fn take_out(balancer: &LoadBalancer, index: usize) {
        let check = HealthCheck::new(http::uri::PathAndQuery::from_static("/"));
        (0..3).for_each(|_| balancer.endpoints()[index].health.record_check(Err(String::new()), &check));
    }

    #[test]
    fn each_upstream_gets_its_turn() {
        let balancer = balancer(Balance::RoundRobin);
        let candidates: Vec<_> = (0..6).map(|_| first(&balancer, &[])).collect();
        assert_eq!(candidates, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn the_least_busy_upstream_is_asked_first() {
        let balancer = balancer(Balance::LeastOutstanding);
        let busy = (balancer.endpoints()[0].start_request(None), balancer.endpoints()[2].start_request(None));
        assert_eq!((0..3).map(|_| first(&balancer, &[])).collect::<Vec<_>>(), [1, 1, 1]);
        drop(busy);
        assert_eq!(balancer.endpoints()[0].in_flight(), 0, "what is over no longer counts");
    }

    #[test]
    fn a_second_attempt_goes_elsewhere() {
        let balancer = balancer(Balance::RoundRobin);
        assert_ne!(first(&balancer, &[0]), 0);
        assert_eq!(first(&balancer, &[1, 2]), 0);
        assert_eq!(balancer.pick(&[0, 1, 2], NOW).len(), 3, "where all were tried, each may be tried again");
    }

    #[test]
    fn the_share_of_a_dead_upstream_goes_to_all_others_alike() {
        for balance in [Balance::RoundRobin, Balance::LeastOutstanding] {
            for dead in 0..3 {
                let balancer = balancer(balance);
                take_out(&balancer, dead);
                let mut asked = [0; 3];
                (0..120).for_each(|_| asked[first(&balancer, &[])] += 1);
                asked.sort_unstable();
                assert_eq!(asked, [0, 60, 60], "{balance:?}");
            }
        }
    }

    #[test]
    fn repeats_of_what_one_upstream_failed_go_to_all_others_alike() {
        let balancer = balancer(Balance::RoundRobin);
        let mut asked = [0; 3];
        for _ in 0..120 {
            let index = first(&balancer, &[]);
            asked[if index == 0 { first(&balancer, &[0]) } else { index }] += 1;
        }
        assert_eq!(asked, [0, 60, 60]);
    }

    #[test]
    fn an_upstream_that_is_not_well_is_left_out_unless_none_is() {
        let balancer = balancer(Balance::RoundRobin);
        take_out(&balancer, 0);
        assert!((0..6).all(|_| !balancer.pick(&[], NOW).contains(&0)));
        take_out(&balancer, 1);
        take_out(&balancer, 2);
        assert!((0..6).any(|_| first(&balancer, &[]) == 0), "a try is better than none");
    }
}
