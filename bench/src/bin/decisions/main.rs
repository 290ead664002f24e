//! Decisions in memory, side by side with `governor`: nanoseconds per decision and bytes per key.
//!
//! `cargo run --profile dist -p spile-bench --bin decisions [-- --quick]`. Both sides get the same String keys in the
//! same random order, in alternating rounds of one process; the figure is the median round.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

mod round;
mod subjects;

use std::alloc::System;

use cap::Cap;
use spile_bench::{Table, median};

use crate::round::{Round, keys};
use crate::subjects::{Governor, GovernorCoarse, GovernorStd, SpileLimiter, SpileStore, Subject};

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let sizes: &[usize] = if quick { &[1, 1_000, 1_000_000] } else { &[1, 1_000, 1_000_000, 10_000_000] };
    let mut table = Table::new(&["keys", "threads", "who", "ns/decision", "speed of governor", "bytes/key"]);
    for &size in sizes {
        let (first, later) = (keys(size, 1), keys(size, 2));
        for threads in [1, 2] {
            let round = Round { first: &first, keys: &later, threads, decisions: size.max(2_000_000) };
            for line in compare(&round, if quick { 3 } else { 5 }) {
                table.row([size.to_string(), threads.to_string()].into_iter().chain(line));
            }
            eprintln!("{size} keys, {threads} thread(s): done");
        }
    }
    println!("{table}");
}

/// One row per subject; speeds are ratios to governor's fastest exact configuration.
fn compare(round: &Round<'_>, rounds: usize) -> Vec<[String; 4]> {
    let mut subjects: Vec<(Box<dyn Subject>, usize)> = Vec::new();
    for make in
        [GovernorStd::boxed, Governor::boxed, GovernorCoarse::boxed, SpileLimiter::boxed, SpileStore::boxed]
    {
        let before = ALLOCATED.allocated();
        let subject = make(round.keys.len());
        subject.fill(round.first);
        let bytes = ALLOCATED.allocated() - before;
        subjects.push((subject, bytes));
    }
    let mut times = vec![Vec::new(); subjects.len()];
    for _ in 0..rounds {
        for (times, (subject, _)) in times.iter_mut().zip(&subjects) {
            times.push(round.run(&**subject));
        }
    }
    let medians: Vec<f64> = times.into_iter().map(median).collect();
    let baseline = medians[1];
    subjects
        .iter()
        .zip(medians)
        .map(|((subject, bytes), ns)| {
            let per_key = *bytes as f64 / round.keys.len() as f64;
            let per_key = if round.keys.len() < 1_000 { "-".to_owned() } else { format!("{per_key:.0}") };
            [subject.name().to_owned(), format!("{ns:.1}"), format!("{:.2}x", baseline / ns), per_key]
        })
        .collect()
}
