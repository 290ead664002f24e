//! Decisions that need no Redis: denials that still hold, and leases. What they cost Redis, and whether they stay exact.
//!
//! `cargo run --profile dist -p spile-bench --bin hot_keys`. Each load runs with and without, in one run. Instances are limiters
//! with connections of their own, in one process.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

mod load;

use std::time::Duration;

use spile_bench::{Table, median};
use spile_core::{Limit, Plan, RateBuilder};
use spile_limiter::RateLimiter;
use spile_redis::RedisStore;
use spile_testkit::redis::RedisServer;

use crate::load::{Cost, Keys, Load};

const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() {
    flood().await;
    leases().await;
}

/// Keys that are denied, asked as fast as two callers can.
async fn flood() {
    let mut table = Table::new(&[
        "100 denied keys, two callers",
        "decisions/s",
        "µs/decision",
        "CPU µs/decision",
        "Redis, % of a core",
        "of that at 10⁶ decisions/s",
    ]);
    for (name, interval) in
        [("always asked", Duration::ZERO), ("deny cache, 100 ms", Duration::from_millis(100))]
    {
        let mut costs = Vec::new();
        for _ in 0..ROUNDS {
            let server = RedisServer::start();
            let instances = [instance(&server, Limit::per_hour(1).burst(1), interval, 0.1)];
            let load =
                Load { callers: 2, per_second: None, keys: Keys::Even(100), time: Duration::from_secs(5) };
            costs.push(load.run(&server, &instances).await);
        }
        let figure = |of: fn(&Cost) -> f64| median(costs.iter().map(of).collect());
        let (rate, redis) = (figure(Cost::rate), figure(|cost| 100.0 * cost.redis_cpu / cost.elapsed));
        table.row([
            name.to_owned(),
            format!("{rate:.0}"),
            format!("{:.2}", figure(|cost| 1e6 * cost.elapsed * 2.0 / cost.decisions)),
            format!("{:.2}", figure(|cost| 1e6 * cost.own_cpu / cost.decisions)),
            format!("{redis:.2}"),
            format!("{:.2}", redis * if interval.is_zero() { 1e6 / rate } else { 1.0 }),
        ]);
    }
    println!("{table}");
}

/// More is asked of hot keys than they may have.
async fn leases() {
    let mut table = Table::new(&[
        "load",
        "instances",
        "limit",
        "decisions/s",
        "calls of Redis/s",
        "Redis CPU µs/decision",
        "decisions per Redis CPU, ratio",
        "admitted of what a saturated key may have",
        "over",
    ]);
    let zipf = |exponent| Keys::Zipf { keys: 10_000, exponent };
    let loads = [
        (Keys::One, "one hot key, twice its rate", 20_000, Some(40_000), 0.1),
        (Keys::One, "the same, lease_share = 0.3", 20_000, Some(40_000), 0.3),
        (Keys::One, "one hot key, full speed", 20_000, None, 0.1),
        (zipf(2.0), "10,000 keys, Zipf s = 2, full speed", 2_000, None, 0.1),
        (zipf(1.0), "10,000 keys, Zipf s = 1, full speed", 2_000, None, 0.1),
    ];
    for (keys, name, rate, demand, share) in loads {
        for count in [1, 3] {
            let mut exact = f64::NAN;
            for lease in [None, Some(Duration::from_millis(100))] {
                let limit = Limit::per_second(rate).burst(rate);
                let limit = lease.map_or(limit, |time| limit.lease(time));
                let mut costs = Vec::new();
                for _ in 0..ROUNDS {
                    let server = RedisServer::start();
                    // Exact means that every decision asks Redis.
                    let cache = Duration::from_millis(if lease.is_some() { 100 } else { 0 });
                    let instances: Vec<_> =
                        (0..count).map(|_| instance(&server, limit, cache, share)).collect();
                    let load = Load {
                        callers: 16,
                        per_second: demand.map(|demand| demand / count),
                        keys,
                        time: TIME,
                    };
                    costs.push(load.run(&server, &instances).await);
                }
                let figure = |of: fn(&Cost) -> f64| median(costs.iter().map(of).collect());
                let cpu = figure(|cost| 1e6 * cost.redis_cpu / cost.decisions);
                let rate = f64::from(u32::try_from(rate).expect("a small rate"));
                let shares = costs.iter().map(|cost| cost.admitted_first / (rate + rate * cost.elapsed));
                let admitted = median(shares.collect());
                if lease.is_none() {
                    exact = cpu;
                }
                table.row([
                    name.to_owned(),
                    count.to_string(),
                    lease.map_or_else(|| "exact".to_owned(), |_| "lease, 100 ms".to_owned()),
                    format!("{:.0}", figure(Cost::rate)),
                    format!("{:.0}", figure(|cost| cost.redis_calls / cost.elapsed)),
                    format!("{cpu:.3}"),
                    format!("{:.1}", exact / cpu),
                    format!("{:.2} %", 100.0 * admitted),
                    if admitted > 1.0 { "yes".to_owned() } else { "no".to_owned() },
                ]);
                eprintln!("{name}, {count} instance(s), {lease:?}: {cpu:.3} µs, {admitted:.4}");
            }
        }
    }
    println!("{table}");
}

fn instance(
    server: &RedisServer,
    limit: RateBuilder,
    deny_cache: Duration,
    lease_share: f64,
) -> RateLimiter<RedisStore> {
    let store = RedisStore::builder(server.url()).timeout(Duration::from_secs(1)).build();
    RateLimiter::builder()
        .store(store.expect("sound settings"))
        .plans([Plan::new("hot", limit).expect("in bounds")])
        .deny_cache(deny_cache)
        .lease_share(lease_share)
        .deadline(Duration::from_secs(1))
        .build()
}
