//! The limits of a plan share one hash for each key, and take over what was stored before they did.

use spile_calendar::CalendarLimit;
use spile_core::{Amount, Charge, Charges, Cost, Inspect, Kept, Key, Limit, LimitName, NamedLimit, StoreExt};
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

/// State as it was written when each limit had a key of its own.
fn stored_before(server: &RedisServer, limit: &str, held: &str) {
    let now = server.command(&["TIME"]).list()[0].int() * 1_000_000;
    let key = format!("{HASH}/{limit}");
    server.command(&["HSET", &key, "t", held, "ts", &now.to_string(), "v", "1"]);
    server.command(&["PEXPIRE", &key, "7200000"]);
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
async fn what_was_stored_before_is_taken_over_by_the_first_charge_and_not_by_a_look() {
    let server = RedisServer::start();
    let store = store(&server);
    stored_before(&server, "burst", "4000000");
    let left = |outcome: spile_core::Outcome| outcome.buckets[0].amount().whole_tokens();
    assert_eq!(left(store.peek(&gold(1)).await.unwrap()), 4);
    let kept = store.kept(&gold(1)).await.unwrap();
    assert!(matches!(kept[..], [Kept::For(_), Kept::Absent]), "{kept:?}");
    assert_eq!(keys(&server), [format!("{HASH}/burst")]);
    assert_eq!(left(store.spend(&gold(3)).await.unwrap()), 1);
    assert_eq!(keys(&server), [HASH]);
    assert!(!store.spend(&gold(3)).await.unwrap().allowed, "it is not full again");
}

#[tokio::test]
async fn a_denial_takes_over_what_was_stored_before() {
    let server = RedisServer::start();
    let store = store(&server);
    stored_before(&server, "burst", "2000000");
    assert!(!store.spend(&gold(3)).await.unwrap().allowed);
    assert_eq!(keys(&server), [HASH]);
    assert!(server.command(&["PTTL", HASH]).int() > 0);
    let looked = store.peek(&gold(1)).await.unwrap();
    assert_eq!(
        looked.buckets.iter().map(|bucket| bucket.amount().whole_tokens()).collect::<Vec<_>>(),
        [2, 100]
    );
}

#[tokio::test]
async fn a_reset_also_removes_what_was_stored_before() {
    let server = RedisServer::start();
    let store = store(&server);
    stored_before(&server, "burst", "0");
    store.reset(&gold(1)).await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
    assert!(store.spend(&gold(10)).await.unwrap().allowed);
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

/// The hash has one bucket for a limit, whatever its shape.
#[tokio::test]
async fn a_quota_in_place_of_a_rate_owes_what_the_rate_owed() {
    let server = RedisServer::start();
    let store = store(&server);
    let late = charge("ann", "gold/burst", BURST, 0);
    let late = Charge::late(late.key(), late.limit().clone(), Cost::new(14).unwrap());
    assert_eq!(store.charge(&late.into()).await.unwrap().uncovered, Amount::ZERO);
    let quota = Limit::quota(100).per_month().build().unwrap();
    let quota = NamedLimit::new(LimitName::new("gold/burst").unwrap(), quota);
    let quota = Charges::one(Key::new("ann").unwrap(), &quota, Cost::ONE).unwrap();
    let outcome = store.peek(&quota).await.unwrap();
    assert_eq!(outcome.buckets[0].available(quota[0].limit().limit(), outcome.at), Amount::from(96));
}

#[tokio::test]
async fn a_hash_of_an_unknown_format_is_begun_anew() {
    for breakage in [&["HSET", HASH, "v", "2"][..], &["HDEL", HASH, "v"], &["SET", HASH, "x"]] {
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
