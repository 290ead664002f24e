//! Permits in Redis: what it costs to take and release one beside a plain decision, and to renew ten thousand, in one run.
//!
//! `cargo run --profile dist -p spile-bench --bin permits`.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use spile_bench::{Table, median};
use spile_core::{
    Charge, Charges, Cost, Key, Limit, LimitName, NamedLimit, PermitId, PermitStep, Plan, StoreExt,
    SystemClock,
};
use spile_limiter::RateLimiter;
use spile_redis::RedisStore;
use spile_testkit::redis::RedisServer;

const ROUNDS: usize = 5;
const CALLERS: usize = 64;
const EACH: usize = 1_000;
/// How many permits are kept, for how long they are watched, and their hold time.
const KEPT: usize = 10_000;
const WATCHED: Duration = Duration::from_secs(40);
const HOLD: Duration = Duration::from_secs(30);

/// What a caller does once.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// A plain decision.
    Spend,
    /// A permit, and its release.
    Permit,
    /// A token and a permit in one chain, and the release.
    Both,
}

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    let loads = [
        ("a plain decision, distinct keys", Work::Spend, true),
        ("acquire + release, distinct keys", Work::Permit, true),
        ("a rate and a permit in a chain + release, distinct keys", Work::Both, true),
        ("a plain decision, one hot key", Work::Spend, false),
        ("acquire + release, one hot key", Work::Permit, false),
    ];
    let mut costs = vec![Vec::new(); loads.len()];
    for round in 0..ROUNDS {
        for (row, (_, work, distinct)) in loads.into_iter().enumerate() {
            costs[row].push(run(&server, work, distinct).await);
        }
        eprintln!("round {} of {ROUNDS}: done", round + 1);
    }
    let mut table = Table::new(&["what, 64 callers", "Redis CPU µs", "× of a plain decision"]);
    let medians: Vec<f64> = costs.into_iter().map(median).collect();
    for (row, (name, _, distinct)) in loads.into_iter().enumerate() {
        let plain = if distinct { medians[0] } else { medians[3] };
        let ratio = format!("{:.2}", medians[row] / plain);
        table.row([name.to_owned(), format!("{:.2}", medians[row]), ratio]);
    }
    println!("{table}");
    renewals(&server).await;
}

/// Microseconds of Redis CPU for each piece of work.
async fn run(server: &RedisServer, work: Work, distinct: bool) -> f64 {
    let store = RedisStore::builder(server.url()).timeout(Duration::from_secs(5)).build().expect("sound");
    do_once(&store, work, "first", 0).await;
    let before = server.cpu_seconds();
    let callers = (0..CALLERS).map(|caller| {
        let store = store.clone();
        tokio::spawn(async move {
            for turn in 0..EACH {
                let key = if distinct { format!("user:{caller}-{}", turn % 100) } else { "hot".to_owned() };
                do_once(&store, work, &key, (caller * EACH + turn) as u128).await;
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("no caller panics");
    }
    (server.cpu_seconds() - before) * 1e6 / (CALLERS * EACH) as f64
}

async fn do_once(store: &RedisStore, work: Work, key: &str, number: u128) {
    let key = Key::new(key).expect("a key");
    let charges = |takes: &[bool]| {
        let charge = |takes: &bool| Charge::new(key, limit(*takes), Cost::ONE).expect("covered");
        Charges::new(takes.iter().map(charge)).expect("a chain")
    };
    let spent = match work {
        Work::Spend => return drop(store.spend(&charges(&[false])).await.expect("Redis answers")),
        Work::Permit => charges(&[true]),
        Work::Both => charges(&[false, true]),
    };
    let id = PermitId::new(SystemClock::wall_now(), Duration::ZERO, number, "bench").expect("an id");
    let taken = store.permit(&spent, &id, PermitStep::Acquire).await.expect("Redis answers");
    assert!(taken.allowed, "there are more places than callers");
    store
        .permit(&charges(&[true]), &id, PermitStep::Release(spile_core::SpendTime::Unknown))
        .await
        .expect("Redis answers");
}

fn limit(takes_permit: bool) -> NamedLimit {
    let (name, limit) = if takes_permit {
        ("plan/jobs", Limit::concurrent(1_000).build())
    } else {
        ("plan/rate", Limit::per_second(1_000_000).burst(1_000_000).build())
    };
    NamedLimit::new(LimitName::new(name).expect("a name"), limit.expect("in bounds"))
}

/// Ten thousand permits that a limiter keeps, each of a key of its own, and what their renewals cost.
async fn renewals(server: &RedisServer) {
    let store = RedisStore::builder(server.url()).timeout(Duration::from_secs(1)).build().expect("sound");
    let plan = Plan::new("kept", Limit::concurrent(5).hold(HOLD)).expect("a plan");
    let limiter = RateLimiter::builder().store(store.clone()).plans([plan]).deadline(Duration::from_secs(1));
    let limiter = Arc::new(limiter.clock(SystemClock::new()).build());
    let mut permits = Vec::with_capacity(KEPT);
    for number in 0..KEPT {
        permits.push(limiter.acquire(&format!("user:{number}"), "kept").await.expect("a place"));
    }
    let (cpu, calls, began) = (server.cpu_seconds(), store.stats().calls, Instant::now());
    tokio::time::sleep(WATCHED).await;
    let (took, seconds) = (server.cpu_seconds() - cpu, began.elapsed().as_secs_f64());
    let (calls, answered) = (store.stats().calls - calls, store.stats().answered);
    assert!(permits.iter().all(spile_limiter::Permit::is_held), "each is renewed in time");
    println!(
        "{KEPT} permits held for {HOLD:?} each: {:.2}% of a core of Redis, {:.1} calls a second, {answered} answers in all",
        100.0 * took / seconds,
        calls as f64 / seconds,
    );
}
