//! What watching costs: decisions per second with metrics, heavy hitters, events, levels, rates, minutes and store
//! timing all on, as a share of decisions per second with all of it off.
//!
//! `cargo run --profile dist -p spile-bench --bin observe`. All sides decide about the same keys in alternating rounds of
//! one process; the figure is the median of the rounds' ratios. Time is the CPU time of the deciding threads, so that
//! neighbours on the machine do not count.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;

use metrics_exporter_prometheus::PrometheusBuilder;
use spile_bench::{Table, median, thread_cpu_ns};
use spile_core::{Limit, Plan, Store};
use spile_limiter::{Ask, RateLimiter, RuleName};
use spile_memory::MemoryStore;
use spile_observe::{TimedStore, Watch};

/// Short rounds and many of them: what disturbs one of them then rarely disturbs all of its sides alike.
const DECISIONS: usize = 1_000_000;
const ROUNDS: usize = 51;

/// What is decided about.
struct Load {
    name: &'static str,
    keys: usize,
    threads: usize,
    plan: &'static str,
}

const LOADS: [Load; 6] = [
    Load { name: "one hot key", keys: 1, threads: 1, plan: "wide" },
    Load { name: "a thousand keys", keys: 1_000, threads: 1, plan: "wide" },
    Load { name: "a million keys", keys: 1_000_000, threads: 1, plan: "wide" },
    Load { name: "a million keys", keys: 1_000_000, threads: 2, plan: "wide" },
    Load { name: "a thousand keys, nearly all denied", keys: 1_000, threads: 1, plan: "narrow" },
    Load { name: "a million keys, a chain of two", keys: 1_000_000, threads: 1, plan: "chain" },
];

fn main() {
    let mut table = Table::new(&[
        "load",
        "threads",
        "off, ns",
        "watched, ns",
        "watched and timed, ns",
        "watched / off",
        "all on / off",
    ]);
    for load in &LOADS {
        let rounds = measure(load);
        let ns = |side: usize| format!("{:.1}", median(rounds.iter().map(|round| round[side]).collect()));
        let share = |side: usize| {
            let shares = rounds.iter().map(|round| round[0] / round[side]).collect();
            format!("{:.1} %", median(shares) * 100.0)
        };
        let row = [ns(0), ns(1), ns(2), share(1), share(2)];
        eprintln!("{}, {} thread(s): {row:?}", load.name, load.threads);
        table.row([load.name.to_owned(), load.threads.to_string()].into_iter().chain(row));
    }
    println!("{table}");
}

/// Nanoseconds per decision of each round: with all off, with the watch, and with the store timed as well.
fn measure(load: &Load) -> Vec<[f64; 3]> {
    let keys: Vec<String> =
        (0..load.keys).map(|key| format!("user:{:08}", key * 7_919 % load.keys)).collect();
    let watch = || Watch::builder().recorder(Arc::new(PrometheusBuilder::new().build_recorder())).build();
    let off = RateLimiter::builder().store(store(load.keys)).plans(plans()).build();
    let watched = RateLimiter::builder().store(store(load.keys)).plans(plans()).observer(watch()).build();
    let full = watch();
    let timed = TimedStore::sampled(store(load.keys), full.clone());
    let timed = RateLimiter::builder().store(timed).plans(plans()).observer(full).build();
    let round = || [run(&off, &keys, load), run(&watched, &keys, load), run(&timed, &keys, load)];
    // The first round makes the keys known.
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

fn run<S: Store + 'static>(limiter: &RateLimiter<S>, keys: &[String], load: &Load) -> f64 {
    let rule = RuleName::new("default");
    let (start, per_thread) = (Barrier::new(load.threads), DECISIONS / load.threads);
    let spent: f64 = thread::scope(|scope| {
        let decide = |thread: usize| {
            let start = &start;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                start.wait();
                let began = thread_cpu_ns();
                runtime.block_on(async {
                    let offset = thread * keys.len() / load.threads;
                    for key in keys.iter().cycle().skip(offset).take(per_thread) {
                        let charges = limiter.charges(key, [load.plan], 1).expect("a sound question");
                        let _decided = black_box(limiter.decide(Ask::from(charges).rule(rule)).await);
                    }
                });
                (thread_cpu_ns() - began) / per_thread as f64
            })
        };
        let threads: Vec<_> = (0..load.threads).map(decide).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    });
    spent / load.threads as f64
}

fn store(keys: usize) -> MemoryStore {
    MemoryStore::builder().max_keys((keys * 5 / 4).max(100_000)).build()
}

fn plans() -> [Plan; 3] {
    let wide = || Limit::per_second(1_000_000_000);
    [
        Plan::new("wide", wide()),
        Plan::new("narrow", Limit::per_minute(1)),
        Plan::chain("chain", [("burst", wide()), ("daily", wide())]),
    ]
    .map(|plan| plan.expect("in bounds"))
}
