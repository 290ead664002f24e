//! The limits of a plan share one hash per key.

use spile_calendar::CalendarLimit;
use spile_core::{Charges, Cost, Inspect, Kept, Key, Limit, LimitName, NamedLimit, StoreExt};
use spile_redis::RedisStore;
use spile_testkit::redis::{Flavour, RedisReply, RedisServer};

use crate::common::{charge, patient};

const HASH: &str = "spile:{ann}:gold";
const BURST: &str = "10, 1/h";
const DAILY: &str = "100, 100/day";

fn store(server: &RedisServer) -> RedisStore {
    patient(&server.url()).prefix("spile").build().expect("a sound URL")
}

fn gold(cost: u64) -> Charges<'static> {
    let chain = [charge("ann", "gold/burst", BURST, cost), charge("ann", "gold/daily", DAILY, cost)];
    Charges::new(chain).expect("a chain")
}

fn fields(server: &RedisServer) -> Vec<String> {
    let reply = server.command(&["HGETALL", HASH]);
    reply.list().iter().map(|field| RedisReply::text(field).to_owned()).collect()
}

fn keys(server: &RedisServer) -> Vec<String> {
    let reply = server.command(&["KEYS", "*"]);
    let mut keys: Vec<_> = reply.list().iter().map(|key| RedisReply::text(key).to_owned()).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn a_chain_of_one_plan_is_one_hash_that_reads_in_plain_words() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).start();
        let outcome = store(&server).spend(&gold(3)).await.unwrap();
        let at = outcome.at.get().to_string();
        assert_eq!(keys(&server), [HASH]);
        let expected =
            ["burst:t", "7000000", "burst:ts", &at, "daily:t", "97000000", "daily:ts", &at, "v", "1"];
        assert_eq!(fields(&server), expected, "{flavour:?}");
    }
}

#[tokio::test]
async fn a_hash_lives_as_long_as_its_slowest_limit_needs() {
    let server = RedisServer::start();
    let store = store(&server);
    let ttl_s = || server.command(&["TTL", HASH]).int();
    let alone = |name: &str, limit: &str| Charges::from(charge("ann", name, limit, 1));
    store.spend(&alone("gold/second", "1, 1/s")).await.unwrap();
    assert!(ttl_s() <= 2, "{}", ttl_s());
    store.spend(&alone("gold/daily", DAILY)).await.unwrap();
    assert!(ttl_s() > 172_700, "{}", ttl_s());
    store.spend(&alone("gold/burst", BURST)).await.unwrap();
    store.spend(&alone("gold", BURST)).await.unwrap();
    assert!(ttl_s() > 172_700, "{}", ttl_s());
}

#[tokio::test]
async fn a_reset_of_one_limit_leaves_the_others_and_of_all_nothing() {
    let server = RedisServer::start();
    let store = store(&server);
    let burst = Charges::from(charge("ann", "gold/burst", BURST, 1));
    let alone = Charges::from(charge("ann", "gold", BURST, 1));
    store.spend(&gold(3)).await.unwrap();
    store.spend(&alone).await.unwrap();
    store.reset(&burst).await.unwrap();
    assert_eq!(store.peek(&gold(1)).await.unwrap().buckets[1].amount().whole_tokens(), 97);
    assert_eq!(store.kept(&burst).await.unwrap(), [Kept::Absent]);
    store.reset(&alone).await.unwrap();
    assert_eq!(store.peek(&gold(1)).await.unwrap().buckets[1].amount().whole_tokens(), 97);
    store.reset(&gold(1)).await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
}

#[tokio::test]
async fn a_broken_field_costs_its_own_bucket_only() {
    let server = RedisServer::start();
    let store = store(&server);
    store.spend(&gold(5)).await.unwrap();
    server.command(&["HSET", HASH, "burst:t", "nan"]);
    let outcome = store.spend(&gold(1)).await.unwrap();
    assert_eq!(
        outcome.buckets.iter().map(|bucket| bucket.amount().whole_tokens()).collect::<Vec<_>>(),
        [9, 94]
    );
    assert_eq!(store.stats().repairs, 1);
}

fn quota(cost: u64) -> Charges<'static> {
    let quota = Limit::quota(100).per_month().build().unwrap();
    let quota = NamedLimit::new(LimitName::new("gold/burst").unwrap(), quota);
    Charges::one(Key::new("ann").unwrap(), &quota, Cost::new(cost).unwrap()).unwrap()
}

#[tokio::test]
async fn a_change_of_shape_to_and_fro_neither_converts_nor_forgets() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).start();
        let store = store(&server);
        let rate = Charges::from(charge("ann", "gold/burst", BURST, 1));
        let (mut by_rate, mut by_quota) = (0, 0);
        for round in 0..24 {
            for _ in 0..10 {
                if round % 2 == 0 {
                    by_rate += u32::from(store.spend(&rate).await.unwrap().allowed);
                } else {
                    by_quota += u32::from(store.spend(&quota(1)).await.unwrap().allowed);
                }
            }
        }
        assert_eq!((by_rate, by_quota), (10, 100), "{flavour:?}");
        let names: Vec<_> = fields(&server).into_iter().step_by(2).collect();
        assert_eq!(names, ["burst:t", "burst:ts", "v", "burst:u", "burst:ue"], "{flavour:?}");
    }
}

#[tokio::test]
async fn a_hash_without_a_version_or_of_another_type_is_begun_anew() {
    for breakage in [&["HDEL", HASH, "v"][..], &["HSET", HASH, "v", "x"], &["SET", HASH, "x"]] {
        let server = RedisServer::start();
        let store = store(&server);
        store.spend(&gold(5)).await.unwrap();
        server.command(breakage);
        assert!(store.spend(&gold(10)).await.unwrap().allowed, "{breakage:?}");
        assert!(store.stats().repairs > 0, "{breakage:?}");
        assert!(!store.spend(&gold(1)).await.unwrap().allowed, "{breakage:?}");
        assert!(server.command(&["PTTL", HASH]).int() > 0, "{breakage:?}");
    }
}
