//! Sentinels that fall silent, refuse or repeat themselves while the store goes on.

use std::time::Duration;

use spile_core::{Cost, ReservationId, StoreExt, Verdict};
use spile_redis::RedisStore;
use spile_testkit::redis::RedisSentinel;
use spile_testkit::wait;
use tokio::time::timeout;

use crate::common::charges;

async fn spends(store: &RedisStore) -> bool {
    store.spend(&charges("ann", "1000, 1/h", 1)).await.is_ok_and(|outcome| outcome.allowed)
}

async fn until_it_spends(store: &RedisStore) {
    let spent = async {
        while !spends(store).await {
            tokio::task::yield_now().await;
        }
    };
    timeout(wait::PATIENCE, spent).await.unwrap_or_else(|_| panic!("{:?}", store.trouble()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_costs_each_connection_once_however_many_sentinels_tell_of_it() {
    let sentinel = RedisSentinel::start();
    let store = RedisStore::builder(sentinel.url()).build().unwrap();
    until_it_spends(&store).await;
    wait::until_true("both connections", || store.stats().connections == 2);
    sentinel.wait_for_replica();
    let lost_before = store.stats().connections_lost;
    // Returns when every sentinel has switched. Each tells its subscribers before it answers questions.
    sentinel.fail_over();
    until_it_spends(&store).await;
    wait::until_true("both connections", || store.stats().connections == 2);
    for _ in 0..100 {
        assert!(spends(&store).await);
    }
    assert_eq!(store.stats().connections_lost - lost_before, 2);
}

/// The marker and the buckets are written in one step, so a failover keeps both or neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_is_settled_once_across_a_failover() {
    let sentinel = RedisSentinel::start();
    let store = RedisStore::builder(sentinel.url()).timeout(Duration::from_secs(5)).build().unwrap();
    until_it_spends(&store).await;
    sentinel.wait_for_replica();
    let reserved = charges("eve", "1000, 1/h", 600);
    let (id, costs) = (ReservationId::new(7, Duration::from_secs(600)).unwrap(), [Cost::new(100).unwrap()]);
    assert!(store.reserve(&reserved, id).await.unwrap().allowed);
    assert_eq!(store.settle(&reserved, id, &costs).await.unwrap().verdict, Verdict::Done);
    sentinel.fail_over();
    until_it_spends(&store).await;
    for _ in 0..3 {
        let again = store.settle(&reserved, id, &costs).await.unwrap();
        assert_eq!(again.outcome.buckets[0].amount().whole_tokens(), 900, "settled then or now, and once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_known_master_is_found_again_while_no_sentinel_answers() {
    let mut sentinel = RedisSentinel::start();
    let store = RedisStore::builder(sentinel.url()).build().unwrap();
    until_it_spends(&store).await;
    wait::until_true("both connections", || store.stats().connections == 2);
    let master = sentinel.master();
    for one in sentinel.sentinels() {
        one.kill();
    }
    let lost = store.stats().connections_lost;
    sentinel.nodes()[master].command(&["CLIENT", "KILL", "TYPE", "normal"]);
    wait::until_true("the connections to be lost", || store.stats().connections_lost >= lost + 2);
    timeout(Duration::from_secs(2), until_it_spends(&store)).await.expect("the master is where it was");
    wait::until_true("a warning of each sentinel", || {
        store.warning().is_some_and(|told| told.matches("sentinel ").count() == 3)
    });
    assert_eq!(store.trouble(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_refuses_the_subscription_is_told_of_while_decisions_go_on() {
    let mut sentinel = RedisSentinel::start();
    for one in sentinel.sentinels() {
        let rights = ["resetchannels", "-@all", "+sentinel|master", "+subscribe", "+ping"];
        one.command(&[&["ACL", "SETUSER", "deaf", "on", ">s3cret"], &rights[..]].concat());
    }
    let store = RedisStore::builder(sentinel.url_as("deaf", "s3cret")).build().unwrap();
    until_it_spends(&store).await;
    let told = || store.warning().unwrap_or_default();
    wait::until_true("the reason", || told().matches("NOPERM").count() == 3);
    assert!(spends(&store).await && store.trouble().is_none());
    for one in sentinel.sentinels() {
        one.command(&["ACL", "SETUSER", "deaf", "&+switch-master"]);
    }
    wait::until_true("the subscriptions", || store.warning().is_none());
}
