//! What the layer costs per request: the same axum stack bare, under `RateLimitLayer` on the embedded store, and
//! under `tower_governor`.
//!
//! `cargo run --profile dist -p spile-bench --bin layer`. Times are the median of alternating rounds in one process.
//! Instructions and allocations come from Valgrind, which runs this program again for each stack.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

mod stacks;
mod valgrind;

use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::Request;
use spile_bench::{Table, median};
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::stacks::{NAMES, stack};

/// Many short rounds: a neighbour that takes the processor for a moment spoils few of them.
const ROUNDS: usize = 401;
const REQUESTS: usize = 2_000;
/// Different callers, in turn.
const CALLERS: u16 = 1_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[..] {
        // How the program runs under Valgrind.
        [_, count, name, requests] if count == "count" => {
            let (runtime, stack, requests) = (runtime(), stack(name), requests.parse().unwrap_or(0));
            // Every caller has a bucket before anything is counted.
            let _ = nanoseconds_per_request(&runtime, &stack, usize::from(CALLERS));
            counted(&runtime, &stack, requests);
        }
        _ => report(),
    }
}

fn report() {
    let times = times();
    let mut table = Table::new(&[
        "stack",
        "ns/request",
        "over bare",
        "instructions/request",
        "over bare",
        "allocations/request",
        "over bare",
    ]);
    let counts: Vec<_> = NAMES.iter().map(|name| valgrind::counts(name)).collect();
    for ((name, time), count) in NAMES.iter().zip(&times).zip(&counts) {
        table.row([
            (*name).to_owned(),
            format!("{time:.0}"),
            format!("{:+.0}", time - times[0]),
            format!("{:.0}", count.instructions),
            format!("{:+.0}", count.instructions - counts[0].instructions),
            format!("{:.2}", count.allocations),
            format!("{:+.2}", count.allocations - counts[0].allocations),
        ]);
    }
    println!("{table}");
}

/// The median nanoseconds of each stack, in the order of the names.
fn times() -> Vec<f64> {
    let runtime = runtime();
    let stacks: Vec<Router> = NAMES.iter().map(|name| stack(name)).collect();
    let mut times = vec![Vec::new(); stacks.len()];
    for round in 0..=ROUNDS {
        for (times, stack) in times.iter_mut().zip(&stacks) {
            let time = nanoseconds_per_request(&runtime, stack, REQUESTS);
            // The first round meets cold caches and keys that have no bucket yet.
            if round > 0 {
                times.push(time);
            }
        }
    }
    times.into_iter().map(median).collect()
}

/// What Valgrind counts and nothing else: clocks that set themselves right at the start are left out.
#[inline(never)]
fn counted(runtime: &Runtime, app: &Router, requests: usize) {
    let _ = nanoseconds_per_request(runtime, app, requests);
}

fn nanoseconds_per_request(runtime: &Runtime, app: &Router, requests: usize) -> f64 {
    runtime.block_on(async {
        let started = Instant::now();
        for number in 0..requests {
            let response = app.clone().oneshot(request(number)).await;
            assert!(response.is_ok_and(|response| response.status().is_success()), "nobody is to be refused");
        }
        started.elapsed().as_nanos() as f64 / requests as f64
    })
}

fn request(number: usize) -> Request<Body> {
    let [high, low] = (number as u16 % CALLERS).to_be_bytes();
    let peer = std::net::SocketAddr::from(([10, 0, high, low], 5_123));
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}
