//! A store outlives the runtime that it was built on: the next caller's runtime takes over its connections and tasks.

use std::time::Duration;

use spile_core::{Limit, Plan, StoreError, StoreExt};
use spile_limiter::RateLimiter;
use spile_redis::{RedisStore, Script};
use spile_testkit::redis::{RedisSentinel, RedisServer};
use spile_testkit::wait;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::common::{PATIENT, charges, patient, shared_cluster};

const LIMIT: &str = "1000, 1/h";

/// A runtime of one thread, or of two.
fn runtime(workers: usize) -> Runtime {
    match workers {
        1 => Builder::new_current_thread().enable_all().build().unwrap(),
        workers => Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap(),
    }
}

async fn spends(store: &RedisStore) -> bool {
    store.spend(&charges("ann", LIMIT, 1)).await.is_ok_and(|outcome| outcome.allowed)
}

/// Asks five times in each of three runtimes, of which the first builds the limiter. How many were allowed in each.
fn allowed_in_three_runtimes(url: &str, workers: usize) -> Vec<usize> {
    let mut limiter = None;
    let ask = |number: usize| {
        runtime(workers).block_on(async {
            let limiter = limiter.get_or_insert_with(|| {
                let plan = Plan::new("free", Limit::per_hour(1)).unwrap();
                let store = patient(url).build().unwrap();
                RateLimiter::builder().store(store).plans([plan]).deadline(PATIENT).build()
            });
            let mut allowed = 0;
            for _ in 0..5 {
                let decision = limiter.allow(&format!("test {number}"), "free", 1).await.unwrap();
                assert!(!decision.degraded(), "{:?}: {:?}", decision.failure(), limiter.store().trouble());
                allowed += usize::from(decision.allowed());
            }
            allowed
        })
    };
    (0..3).map(ask).collect()
}

#[test]
fn a_limiter_that_several_runtimes_share_one_after_the_other_limits_in_each() {
    let (server, sentinel, cluster) = (RedisServer::start(), RedisSentinel::start(), shared_cluster());
    for url in [server.url(), sentinel.url(), cluster.url()] {
        for workers in [1, 2] {
            assert_eq!(allowed_in_three_runtimes(&url, workers), [1, 1, 1], "{url} by {workers} threads");
        }
    }
}

#[test]
fn a_change_of_master_is_noticed_by_a_later_runtime() {
    let sentinel = RedisSentinel::start();
    let first = runtime(2);
    let store = first.block_on(async {
        let store = patient(&sentinel.url()).build().unwrap();
        assert!(spends(&store).await);
        store
    });
    drop(first);
    runtime(2).block_on(async {
        assert!(spends(&store).await);
        wait::until_true("both connections", || store.stats().connections == 2);
        sentinel.wait_for_replica();
        sentinel.fail_over();
        let spent = async {
            while !spends(&store).await {
                tokio::task::yield_now().await;
            }
        };
        timeout(wait::PATIENCE, spent).await.unwrap_or_else(|_| panic!("{:?}", store.trouble()));
    });
}

#[test]
fn a_request_that_waits_when_the_runtime_of_the_connections_ends_is_sent_by_its_own() {
    let server = RedisServer::start();
    let (first, second) = (runtime(2), runtime(2));
    server.freeze();
    let store = first.block_on(async { patient(&server.url()).build().unwrap() });
    let asked = {
        let store = store.clone();
        second
            .spawn(async move { store.spend(&charges("ann", LIMIT, 1)).await.map(|outcome| outcome.allowed) })
    };
    wait::until_true("the request", || store.stats().waiting == 1);
    drop(first);
    server.thaw();
    assert!(second.block_on(asked).unwrap().unwrap());
}

#[test]
fn a_request_in_flight_when_the_runtime_of_the_connections_ends_may_have_run() {
    let server = RedisServer::start();
    let (first, second) = (runtime(2), runtime(2));
    let store = first.block_on(async {
        let store = patient(&server.url()).build().unwrap();
        assert!(spends(&store).await);
        store
    });
    wait::until_true("both connections", || store.stats().connections == 2);
    server.freeze();
    let asked = {
        let store = store.clone();
        second.spawn(async move { store.spend(&charges("ann", LIMIT, 1)).await })
    };
    wait::until_true("the request", || store.stats().waiting == 1);
    // The lanes take it from the queue at once. Those that have not yet are asked again, which is right too.
    wait::lasting(Duration::from_millis(100));
    drop(first);
    server.thaw();
    match second.block_on(asked).unwrap() {
        Ok(outcome) => assert!(outcome.allowed),
        Err(why) => assert!(why.may_have_run(), "{why}"),
    }
    assert!(second.block_on(spends(&store)));
}

#[test]
fn a_breaker_that_was_open_when_the_runtime_ended_closes_for_the_next_one() {
    let mut server = RedisServer::start();
    let first = runtime(1);
    let store = first.block_on(async {
        let store = patient(&server.url()).build().unwrap();
        assert!(spends(&store).await);
        server.kill();
        let opened = async {
            while !matches!(store.spend(&charges("ann", LIMIT, 1)).await, Err(StoreError::BreakerOpen)) {
                tokio::task::yield_now().await;
            }
        };
        timeout(wait::PATIENCE, opened).await.expect("the breaker opens");
        store
    });
    drop(first);
    server.restart();
    assert!(runtime(1).block_on(spends(&store)));
}

#[test]
fn sessions_and_subscriptions_go_on_in_a_later_runtime() {
    let count = Script::new("return redis.call('INCR', KEYS[1])");
    let publish = Script::new("return redis.call('PUBLISH', ARGV[1], 'news')");
    let server = RedisServer::start();
    let first = runtime(1);
    let (session, subscription) = first.block_on(async {
        let session = patient(&server.url()).build().unwrap().session("test");
        let subscription = session.subscribe();
        session.run(&count, &[session.key("count")], &[], PATIENT).await.unwrap();
        timeout(PATIENT, subscription.notified()).await.expect("it is subscribed");
        (session, subscription)
    });
    drop(first);
    runtime(1).block_on(async {
        let counted = session.run(&count, &[session.key("count")], &[], PATIENT).await.unwrap();
        assert_eq!(counted.as_int(), Some(2));
        // Messages may have been missed when the first runtime ended, and again until the subscription is renewed.
        let channel = session.channel().as_bytes();
        let heard = async {
            loop {
                subscription.notified().await;
                if session.run(&publish, &[], &[channel], PATIENT).await.unwrap().as_int() == Some(1) {
                    return subscription.notified().await;
                }
            }
        };
        timeout(PATIENT, heard).await.expect("it hears messages again");
    });
}
