//! Asks one kind of question many times: what `bench/instructions/run` counts instructions of, and `bench/script/run` the CPU time of
//! Redis.
//!
//! `questions ROW COUNT [redis://HOST:PORT]`. Both scripts build this file against two versions of the crates, so it names no more of
//! them than it needs.

use std::hint::black_box;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::Request;
// Extension traits come and go between versions.
#[allow(clippy::wildcard_imports, unused_imports, reason = "it is built against two versions")]
use spile_calendar::*;
#[allow(clippy::wildcard_imports, unused_imports, reason = "it is built against two versions")]
use spile_core::*;
use spile_limiter::{KeyedLimiter, RateLimiter};
use spile_memory::MemoryStore;
use spile_redis::RedisStore;
use spile_tower::key::ClientIp;
use spile_tower::{RateLimitLayer, Rule};
use tower::ServiceExt;

/// How many questions are on their way to Redis at once.
const AT_ONCE: usize = 64;
/// How many callers ask.
const CALLERS: usize = 1_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, row, count, rest @ ..] = &arguments[..] else { panic!("questions ROW COUNT [URL]") };
    let count: usize = count.parse().expect("a count");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let keys: Vec<String> = (0..CALLERS).map(|number| format!("user:{number}")).collect();
    let redis = |plan: Plan| {
        let store = RedisStore::builder(rest.first().expect("a URL")).timeout(Duration::from_secs(5)).build();
        // Redis answers all that passes, because no plan has a lease. A denial lasts for longer than a row takes.
        RateLimiter::builder()
            .store(store.expect("sound settings"))
            .plans([plan])
            .deny_cache(Duration::from_secs(10))
            .deadline(Duration::from_secs(5))
            .build()
    };
    match row.as_str() {
        "check" => counted_at_once(&per_key(), &keys, count),
        "allow" => counted(&runtime, allow(&embedded(single()), &keys, count)),
        "chain" => counted(&runtime, allow(&embedded(rates()), &keys, count)),
        "layer" => counted(&runtime, layer(&layered(), count)),
        "one-call" => {
            let limiter = runtime.block_on(async { redis(single()) });
            // Connected before anything is counted.
            runtime.block_on(allow(&limiter, &keys, 100));
            counted(&runtime, allow(&limiter, &keys, count));
        }
        "denied" => {
            let limiter = runtime.block_on(async { redis(tiny()) });
            // The first question about a key takes its only token, and the second one's denial is remembered.
            runtime.block_on(ask_of_all(&limiter, &keys));
            runtime.block_on(ask_of_all(&limiter, &keys));
            counted(&runtime, denied(&limiter, &keys, count));
        }
        "redis-rate" => runtime.block_on(async { at_once(&redis(single()), &keys, count, ask).await }),
        "redis-one-caller" => {
            runtime.block_on(async { allow(&redis(single()), &keys, count).await });
        }
        "redis-chain" => runtime.block_on(async { at_once(&redis(rates()), &keys, count, ask).await }),
        "redis-hot-key" => {
            runtime.block_on(async { at_once(&redis(single()), &keys[..1], count, ask).await });
        }
        "redis-peek" => runtime.block_on(async { at_once(&redis(single()), &keys, count, peek).await }),
        "redis-quota" => runtime.block_on(async { at_once(&redis(quota()), &keys, count, ask).await }),
        "redis-reservation" => {
            runtime.block_on(async { at_once(&redis(single()), &keys, count, reserve).await });
        }
        "redis-permit" => runtime.block_on(async { at_once(&redis(permits()), &keys, count, permit).await }),
        _ => panic!("there is no row {row}"),
    }
}

/// Runs what is counted. Clocks that calibrate themselves at the start, for a time and not for a number of instructions, are not.
#[inline(never)]
fn counted(runtime: &tokio::runtime::Runtime, questions: impl Future<Output = ()>) {
    runtime.block_on(questions);
}

/// Large enough that everything passes, and slow enough that no bucket is full again and forgotten.
fn single() -> Plan {
    Plan::new("plan", Limit::per(100_000_000, Duration::from_secs(10 * 365 * 86_400))).expect("a plan")
}

/// One token, and no other during a run.
fn tiny() -> Plan {
    Plan::new("plan", Limit::per(1, Duration::from_secs(10 * 365 * 86_400)).burst(1)).expect("a plan")
}

fn rates() -> Plan {
    let limits = [("second", 1_000_000), ("minute", 10_000_000), ("hour", 100_000_000)];
    Plan::chain("plan", limits.map(|(name, tokens)| (name, Limit::per_hour(tokens).burst(tokens))))
        .expect("a plan")
}

fn quota() -> Plan {
    Plan::new("plan", Limit::quota(100_000_000).per_month()).expect("a plan")
}

fn permits() -> Plan {
    Plan::new("plan", Limit::concurrent(1_000)).expect("a plan")
}

fn embedded(plan: Plan) -> RateLimiter<MemoryStore> {
    RateLimiter::builder().store(MemoryStore::new()).plans([plan]).build()
}

fn per_key() -> KeyedLimiter {
    RateLimiter::per_key(Limit::per(100_000_000, Duration::from_secs(10 * 365 * 86_400))).expect("in bounds")
}

/// The same without a future.
#[inline(never)]
fn counted_at_once(limiter: &KeyedLimiter, keys: &[String], count: usize) {
    for key in keys.iter().cycle().take(count) {
        assert!(black_box(limiter.check(key).is_ok_and(|decision| decision.allowed())));
    }
}

async fn allow<S: Store>(limiter: &RateLimiter<S>, keys: &[String], count: usize) {
    for key in keys.iter().cycle().take(count) {
        assert!(black_box(limiter.allow(key, "plan", 1).await.is_ok_and(|decision| decision.allowed())));
    }
}

async fn ask_of_all<S: Store>(limiter: &RateLimiter<S>, keys: &[String]) {
    for key in keys {
        let _ = limiter.allow(key, "plan", 1).await.expect("a decision");
    }
}

async fn denied<S: Store>(limiter: &RateLimiter<S>, keys: &[String], count: usize) {
    for key in keys.iter().cycle().take(count) {
        assert!(black_box(limiter.allow(key, "plan", 1).await.is_ok_and(|decision| !decision.allowed())));
    }
}

fn layered() -> Router {
    let plan = Plan::new("free", Limit::per_second(1).burst(300_000_000)).expect("a plan");
    let limiter = RateLimiter::builder().store(MemoryStore::new()).plans([plan]).build();
    let layer =
        RateLimitLayer::new(limiter, Rule::new(ClientIp::direct(), "free")).expect("the plan is there");
    Router::new().route("/", get(|| async { "ok" })).layer(layer).with_state(())
}

async fn layer(app: &Router, count: usize) {
    for number in 0..count {
        let [high, low] = (number % CALLERS).to_be_bytes()[6..] else { unreachable!() };
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(ConnectInfo(std::net::SocketAddr::from(([10, 0, high, low], 5_123))));
        assert!(app.clone().oneshot(request).await.is_ok_and(|response| response.status().is_success()));
    }
}

type Limiter = RateLimiter<RedisStore>;

/// Asks from as many callers at once as a busy service has.
async fn at_once<F: Future<Output = ()> + Send + 'static>(
    limiter: &Limiter,
    keys: &[String],
    count: usize,
    question: impl Fn(Limiter, String) -> F + Copy + Send + Sync + 'static,
) {
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..AT_ONCE {
        let (limiter, keys) = (limiter.clone(), keys.to_owned());
        callers.spawn(async move {
            for number in (caller..count).step_by(AT_ONCE) {
                question(limiter.clone(), keys[number % keys.len()].clone()).await;
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("no caller panics");
    }
}

async fn ask(limiter: Limiter, key: String) {
    assert!(limiter.allow(&key, "plan", 1).await.is_ok_and(|decision| decision.allowed()));
}

async fn peek(limiter: Limiter, key: String) {
    assert!(limiter.peek(&key, "plan", 1).await.is_ok_and(|decision| decision.allowed()));
}

async fn reserve(limiter: Limiter, key: String) {
    let mut reserved =
        limiter.reserve(&key, "plan", 5, Duration::from_secs(60)).await.expect("it is allowed");
    reserved.settle(3).await.expect("Redis answers");
}

async fn permit(limiter: Limiter, key: String) {
    limiter.acquire(&key, "plan").await.expect("there is a place").release().await.expect("Redis answers");
}
