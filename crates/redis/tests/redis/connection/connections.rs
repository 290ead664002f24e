//! Connections that share what is asked at once, and callers that are answered in time whatever Redis does.

use std::time::Duration;

use futures_util::future::join_all;
use spile_core::{Clock, StoreError, StoreExt, SystemClock};
use spile_redis::{RedisBuildError, RedisStore};
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;

use crate::common::{self, charges, patient};

const LIMIT: &str = "100000, 100/h";

/// The most that any call may take beyond the 50 ms that it has.
const GRACE: Duration = Duration::from_millis(20);

async fn answers(store: &RedisStore) -> bool {
    store.peek(&charges("probe", LIMIT, 0)).await.is_ok()
}

async fn until_it_answers(store: &RedisStore) -> Duration {
    let clock = SystemClock::new();
    let started = clock.now();
    while !answers(store).await {
        assert!(clock.now().since_us(started) < 10_000_000, "{:?}", store.trouble());
        tokio::task::yield_now().await;
    }
    Duration::from_micros(clock.now().since_us(started))
}

fn calls_of(server: &RedisServer, command: &str) -> u64 {
    let stats = server.info("commandstats", &format!("cmdstat_{command}")).unwrap_or_default();
    let calls = stats.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
    calls.map_or(0, |digits| digits.parse().expect("a count"))
}

#[tokio::test]
async fn what_is_asked_at_once_shares_a_call_and_a_hot_key_is_read_and_written_once() {
    let server = RedisServer::start();
    let store = patient(&server.url()).build().unwrap();
    assert!(answers(&store).await);
    let (before, reads, writes) = (store.stats(), calls_of(&server, "hmget"), calls_of(&server, "hset"));
    let charges = charges("hot", LIMIT, 1);
    let outcomes = join_all((0..64).map(|_| store.spend(&charges))).await;
    let mut left: Vec<u64> =
        outcomes.into_iter().map(|outcome| outcome.unwrap().buckets[0].amount().whole_tokens()).collect();
    left.sort_unstable();
    assert_eq!(left, (99_936..100_000).collect::<Vec<u64>>(), "each caller sees its own spend");
    let after = store.stats();
    assert_eq!(after.answered - before.answered, 64);
    assert!(after.calls - before.calls <= 2, "{} calls", after.calls - before.calls);
    assert!(calls_of(&server, "hmget") - reads <= 2);
    assert!(calls_of(&server, "hset") - writes <= 2);
}

#[tokio::test]
async fn scripts_that_are_flushed_all_the_time_cost_no_decision() {
    let server = RedisServer::start();
    let store = patient(&server.url()).build().unwrap();
    for _ in 0..50 {
        server.command(&["SCRIPT", "FLUSH"]);
        assert!(store.spend(&charges("ann", LIMIT, 1)).await.unwrap().allowed);
    }
    let outcome = store.peek(&charges("ann", LIMIT, 1)).await.unwrap();
    assert_eq!(outcome.buckets[0].amount().whole_tokens(), 99_950, "and none is charged twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_redis_is_down_is_built_answers_at_once_and_takes_over_when_it_comes_up() {
    let mut server = RedisServer::start();
    server.kill();
    let store = RedisStore::builder(server.url()).build().unwrap();
    let clock = SystemClock::new();
    let started = clock.now();
    assert!(store.spend(&charges("ann", LIMIT, 1)).await.is_err());
    assert!(clock.now().since_us(started) < 70_000);
    assert!(matches!(store.spend(&charges("ann", LIMIT, 1)).await, Err(StoreError::BreakerOpen)));
    assert!(store.trouble().is_some());
    server.restart();
    assert!(until_it_answers(&store).await < Duration::from_secs(1));
    assert_eq!(store.trouble(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_redis_costs_each_caller_no_more_than_the_deadline_and_is_found_again_when_it_thaws() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).build().unwrap();
    until_it_answers(&store).await;
    server.freeze();
    let clock = SystemClock::new();
    let (mut turned_away, mut took) = (0, Vec::new());
    for _ in 0..100 {
        let started = clock.now();
        let refused = store.spend(&charges("ann", LIMIT, 1)).await.unwrap_err();
        took.push(Duration::from_micros(clock.now().since_us(started)));
        turned_away += u32::from(matches!(refused, StoreError::BreakerOpen));
    }
    assert!(turned_away > 80, "the breaker opened");
    took.sort_unstable();
    // The two slowest may have waited for a core, on a machine that runs many tests at once.
    assert!(took[97] < Duration::from_millis(50) + GRACE, "{:?}", &took[90..]);
    assert!(store.stats().is_breaker_open());
    server.thaw();
    assert!(until_it_answers(&store).await < Duration::from_secs(1));
    assert_eq!(store.stats().waiting, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_give_their_places_back() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).max_waiting(8).timeout(common::PATIENT).build().unwrap();
    until_it_answers(&store).await;
    server.freeze();
    for _ in 0..20 {
        let asked = charges("ann", LIMIT, 1);
        let waiting = join_all((0..8).map(|_| store.spend(&asked)));
        assert!(tokio::time::timeout(Duration::from_millis(1), waiting).await.is_err());
    }
    assert_eq!(store.stats().waiting, 0);
    server.thaw();
    until_it_answers(&store).await;
}

#[tokio::test]
async fn a_caller_who_finds_the_queue_full_is_turned_away_at_once() {
    let server = RedisServer::start();
    let store = patient(&server.url()).max_waiting(4).build().unwrap();
    until_it_answers(&store).await;
    let asked = charges("ann", LIMIT, 1);
    let outcomes = join_all((0..10).map(|_| store.spend(&asked))).await;
    let turned_away = outcomes.iter().filter(|outcome| matches!(outcome, Err(StoreError::Overloaded(_))));
    assert_eq!(turned_away.count(), 6);
    assert!(store.spend(&asked).await.is_ok(), "and is let in when there is room");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_connection_costs_an_idle_store_nothing() {
    let server = RedisServer::start();
    let store = patient(&server.url()).build().unwrap();
    for _ in 0..5 {
        wait::until_true("both connections", || store.stats().connections == 2);
        let lost = store.stats().connections_lost;
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        wait::until_true("both losses to be noticed", || store.stats().connections_lost >= lost + 2);
        assert!(store.spend(&charges("ann", LIMIT, 1)).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_becomes_a_replica_is_left_and_taken_up_again_when_it_is_master() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).build().unwrap();
    until_it_answers(&store).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    while store.spend(&charges("ann", LIMIT, 1)).await.is_ok() {}
    assert!(store.spend(&charges("ann", LIMIT, 1)).await.is_err());
    server.command(&["REPLICAOF", "NO", "ONE"]);
    assert!(until_it_answers(&store).await < Duration::from_secs(1));
    assert!(store.spend(&charges("ann", LIMIT, 1)).await.unwrap().allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_last_clone_closes_every_socket() {
    let server = RedisServer::start();
    let others = server.command(&["CLIENT", "LIST"]).text().lines().count();
    let store = patient(&server.url()).build().unwrap();
    let clone = store.clone();
    until_it_answers(&store).await;
    let connected = || server.command(&["CLIENT", "LIST"]).text().lines().count() - others;
    wait::until_true("both connections", || connected() == 2);
    drop(store);
    assert!(answers(&clone).await);
    drop(clone);
    wait::until_true("the sockets to close", || connected() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_twenty_sockets_a_second_are_tried_while_nothing_answers() {
    let mut server = RedisServer::start();
    server.kill();
    let store = RedisStore::builder(server.url()).build().unwrap();
    wait::lasting(Duration::from_secs(2));
    assert!((2..=40).contains(&store.stats().dials), "{} dials", store.stats().dials);
}

#[test]
fn a_store_cannot_be_built_without_a_runtime() {
    let built = RedisStore::builder("redis://127.0.0.1").build();
    assert!(matches!(built, Err(RedisBuildError::NoRuntime)));
}
