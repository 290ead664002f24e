//! A Redis that has lost its buckets, or may evict them, is noticed.

use spile_redis::RedisStore;
use spile_testkit::redis::RedisServer;

fn store(server: &RedisServer) -> RedisStore {
    RedisStore::builder(server.url()).build().unwrap()
}

#[tokio::test]
async fn a_flushed_redis_is_reported_by_every_instance_and_an_untouched_one_by_none() {
    let server = RedisServer::start();
    let stores = [store(&server), store(&server)];
    let mut examiners = stores.each_ref().map(RedisStore::examiner);
    for _ in 0..3 {
        for examiner in &mut examiners {
            examiner.look().await.unwrap();
        }
    }
    assert_eq!(stores.each_ref().map(RedisStore::warning), [None, None]);
    server.command(&["FLUSHALL"]);
    for (store, examiner) in stores.iter().zip(&mut examiners) {
        for _ in 0..3 {
            examiner.look().await.unwrap();
            let warning = store.warning().expect("it is reported");
            assert!(warning.contains("lost keys") && warning.contains("FLUSHALL"), "{warning}");
        }
    }
    let late = store(&server);
    let mut examiner = late.examiner();
    examiner.look().await.unwrap();
    examiner.look().await.unwrap();
    assert_eq!(late.warning(), None, "an instance that started afterwards has lost nothing");
}

#[tokio::test]
async fn a_policy_that_evicts_buckets_is_reported_while_it_holds() {
    let server = RedisServer::start();
    let store = store(&server);
    let mut examiner = store.examiner();
    for (memory, policy, is_reported) in [
        ("0", "allkeys-lru", false),
        ("100mb", "allkeys-lru", true),
        ("100mb", "noeviction", false),
        ("100mb", "volatile-lru", true),
        ("100mb", "volatile-ttl", false),
    ] {
        server.command(&["CONFIG", "SET", "maxmemory", memory]);
        server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        examiner.look().await.unwrap();
        let warning = store.warning();
        let names_it = warning.as_ref().is_some_and(|warning| warning.contains(policy));
        assert_eq!(
            (warning.is_some(), names_it),
            (is_reported, is_reported),
            "{memory} {policy}: {warning:?}"
        );
    }
}

#[tokio::test]
async fn a_user_who_may_not_look_is_warned_of_nothing() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "default", "-get", "-set", "-info"]);
    let store = store(&server);
    let mut examiner = store.examiner();
    for _ in 0..3 {
        examiner.look().await.unwrap();
    }
    assert_eq!(store.warning(), None);
}
