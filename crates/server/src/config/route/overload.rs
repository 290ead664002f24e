//! How a route looks after its upstreams: checks, limits that follow how they fare, and a cap.

use http::uri::PathAndQuery;
use spile_gateway::{Adaptive, Concurrency, HealthCheck};

use super::set_wait;
use crate::config::bounded;
use crate::config::file::{AdaptiveFile, ConcurrencyFile, Faults, HealthFile, Spot};

/// Requests that an upstream may have at once, or that may wait for it.
const MAX_REQUESTS: u64 = 1_000_000;

pub(super) fn check_health(file: HealthFile, faults: &mut Faults) -> Option<HealthCheck> {
    let path = file.path.and_then(|path| check_path(&path, faults));
    let mut check = HealthCheck::new(PathAndQuery::from_static("/"));
    set_wait(&mut check.interval, file.interval, faults);
    set_wait(&mut check.timeout, file.timeout, faults);
    set_count(&mut check.unhealthy_after, file.unhealthy_after, faults);
    set_count(&mut check.healthy_after, file.healthy_after, faults);
    check.path = path?;
    Some(check)
}

pub(super) fn check_adaptive(file: AdaptiveFile, faults: &mut Faults) -> Adaptive {
    let mut adaptive = Adaptive::default();
    set_wait(&mut adaptive.target_latency, file.target_latency, faults);
    set_wait(&mut adaptive.window, file.window, faults);
    set_count(&mut adaptive.min_requests, file.min_requests, faults);
    let shares = [
        (&mut adaptive.max_error_rate, file.max_error_rate),
        (&mut adaptive.decrease, file.decrease),
        (&mut adaptive.increase, file.increase),
        (&mut adaptive.floor, file.floor),
    ];
    for (share, number) in shares {
        *share = bounded::check(number, 0.001..=1.0, faults).unwrap_or(*share);
    }
    adaptive
}

pub(super) fn check_concurrency(file: ConcurrencyFile, faults: &mut Faults) -> Concurrency {
    let mut cap = Concurrency::default();
    if let Some(most) = bounded::check(file.per_upstream, 1..=MAX_REQUESTS, faults) {
        cap.per_upstream = most as usize;
    }
    let per_caller = bounded::check(file.per_caller, 1..=cap.per_upstream as u64, faults);
    cap.per_caller = per_caller.map(|most| most as usize);
    if let Some(most) = bounded::check(file.queue, 0..=MAX_REQUESTS, faults) {
        cap.queue = most as usize;
    }
    set_wait(&mut cap.wait, file.wait, faults);
    cap
}

fn set_count(count: &mut u32, number: Option<Spot<u64>>, faults: &mut Faults) {
    if let Some(number) = bounded::check(number, 1..=MAX_REQUESTS, faults) {
        *count = number as u32;
    }
}

fn check_path(Spot { value, place }: &Spot<String>, faults: &mut Faults) -> Option<PathAndQuery> {
    let path = value.parse().ok().filter(|path: &PathAndQuery| path.as_str().starts_with('/'));
    if path.is_none() {
        let message = format!("`{value}` is no path");
        faults.add(place, message, "a path that starts with `/`, as in `/health`");
    }
    path
}
