//! Decisions in memory through limitador's library and through Spile, in alternating rounds of one process: CPU nanoseconds per decision.
//!
//! `cargo run --release --manifest-path bench/limitador/Cargo.toml`. Both get the same 1,000 keys and a limit that is never reached.

use std::collections::HashMap;
use std::hint::black_box;

use limitador::RateLimiter as Limitador;
use limitador::limit::{Context, Expression, Limit as LimitadorLimit, Namespace};
use rustix::time::{ClockId, clock_gettime};
use spile_core::{Limit, Plan};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;

const KEYS: usize = 1_000;
const DECISIONS: usize = 500_000;
const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("user:{key:08}")).collect();
    let limitador = Limitador::new(10_000);
    let variable = Expression::parse("user").map_err(|why| format!("{why:?}"))?;
    limitador.add_limit(LimitadorLimit::new("bench", 1_000_000_000, 1, [], [variable]));
    let namespace = Namespace::from("bench");
    let limit = Limit::per_second(1_000_000_000).burst(1_000_000_000);
    let spile = RateLimiter::builder().store(MemoryStore::new()).plans([Plan::new("bench", limit)?]).build();

    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(round(&keys, |key| {
            let context = Context::from(HashMap::from([("user".to_owned(), key.to_owned())]));
            let decision = limitador.check_rate_limited_and_update(&namespace, &context, 1);
            !decision.expect("a decision").limited
        }));
        ours.push(round(&keys, |key| spile.try_allow(key, "bench", 1).expect("a decision").allowed()));
    }
    let (theirs, ours) = (median(theirs), median(ours));
    println!("limitador {theirs:.0} ns, Spile {ours:.0} ns, ratio {:.1}", theirs / ours);
    Ok(())
}

/// CPU nanoseconds per decision.
fn round(keys: &[String], decide: impl Fn(&str) -> bool) -> f64 {
    let began = cpu_ns();
    for key in keys.iter().cycle().take(DECISIONS) {
        assert!(black_box(decide(key)), "the limit is never reached");
    }
    (cpu_ns() - began) / DECISIONS as f64
}

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
