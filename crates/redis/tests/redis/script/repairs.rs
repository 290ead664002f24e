//! State that nobody of ours wrote is repaired to a full bucket and counted; it never stops a decision.

use std::time::Duration;

use spile_core::{Amount, Charges, Cost, ReservationId, SpendTime, StoreExt, Verdict};
use spile_redis::RedisStore;
use spile_testkit::redis::{Flavour, RedisServer};

use crate::common::{charge, charges, patient};

const BUCKET: &str = "spile:{ann}:limit";
const LIMIT: &str = "10, 1/h";

fn store(server: &RedisServer) -> RedisStore {
    patient(&server.url()).prefix("spile").build().expect("a sound URL")
}

/// Commands that each leave the bucket unreadable in their own way.
const BREAKAGES: [&[&str]; 13] = [
    &["LPUSH", BUCKET, "x"],
    &["SET", BUCKET, "x"],
    &["SADD", BUCKET, "x"],
    &["HSET", BUCKET, "t", "nan", "ts", "1", "v", "1"],
    &["HSET", BUCKET, "t", "-2000000000000001", "ts", "1", "v", "1"],
    &["HSET", BUCKET, "t", "1e308", "ts", "1", "v", "1"],
    &["HSET", BUCKET, "t", "0.5", "ts", "1", "v", "1"],
    &["HSET", BUCKET, "t", "", "ts", "1", "v", "1"],
    &["HSET", BUCKET, "t", "5", "ts", "inf", "v", "1"],
    &["HSET", BUCKET, "t", "5", "ts", "-7", "v", "1"],
    &["HSET", BUCKET, "t", "5", "v", "1"],
    &["HSET", BUCKET, "t", "5", "ts", "1", "v", "0"],
    &["HSET", BUCKET, "t", "5", "ts", "1"],
];

#[tokio::test]
async fn whatever_is_found_a_spend_repairs_it_counts_it_and_leaves_a_key_that_expires() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).start();
        let store = store(&server);
        for (done, breakage) in BREAKAGES.iter().enumerate() {
            server.command(&["DEL", BUCKET]);
            server.command(breakage);
            let outcome = store.spend(&charges("ann", LIMIT, 3)).await.unwrap();
            assert!(outcome.allowed, "{flavour:?} {breakage:?}");
            assert_eq!(outcome.buckets[0].amount().whole_tokens(), 7, "{flavour:?} {breakage:?}");
            assert_eq!(store.stats().repairs, done as u64 + 1, "{flavour:?} {breakage:?}");
            assert_eq!(server.command(&["HGET", BUCKET, "t"]).int(), 7_000_000);
            assert_eq!(server.command(&["HGET", BUCKET, "v"]).int(), 1);
            assert!(server.command(&["PTTL", BUCKET]).int() > 0);
        }
    }
}

#[tokio::test]
async fn looking_at_a_broken_bucket_shows_a_full_one_and_leaves_it() {
    let server = RedisServer::start();
    let store = store(&server);
    server.command(&["LPUSH", BUCKET, "x"]);
    let outcome = store.peek(&charges("ann", LIMIT, 10)).await.unwrap();
    assert!(outcome.allowed);
    assert_eq!(store.stats().repairs, 0);
    assert_eq!(server.command(&["TYPE", BUCKET]).text(), "list");
}

#[tokio::test]
async fn a_denied_chain_repairs_the_broken_bucket_beside_the_one_that_denied() {
    let server = RedisServer::start();
    let store = store(&server);
    store.spend(&charges("ann", LIMIT, 10)).await.unwrap();
    server.command(&["LPUSH", "spile:{bob}:limit", "x"]);
    let chain = Charges::new([charge("ann", "limit", LIMIT, 1), charge("bob", "limit", LIMIT, 1)]).unwrap();
    assert!(!store.spend(&chain).await.unwrap().allowed);
    assert_eq!(store.stats().repairs, 1);
    assert_eq!(server.command(&["EXISTS", "spile:{bob}:limit"]).int(), 0, "no state is a full bucket");
}

#[tokio::test]
async fn a_refund_or_a_reset_of_a_broken_bucket_leaves_none() {
    let server = RedisServer::start();
    let store = store(&server);
    for _ in 0..2 {
        server.command(&["SET", BUCKET, "x"]);
        store.refund(&charges("ann", LIMIT, 1), SpendTime::ThisWindow).await.unwrap();
        assert_eq!(server.command(&["EXISTS", BUCKET]).int(), 0);
        server.command(&["SET", BUCKET, "x"]);
        store.reset(&charges("ann", LIMIT, 1)).await.unwrap();
        assert_eq!(server.command(&["EXISTS", BUCKET]).int(), 0);
    }
    assert_eq!(store.stats().repairs, 4);
}

#[tokio::test]
async fn a_marker_that_another_program_has_changed_fails_no_call() {
    let server = RedisServer::start();
    let store = store(&server);
    let (chain, id) = (charges("ann", LIMIT, 3), ReservationId::new(7, Duration::from_secs(60)).unwrap());
    assert!(store.reserve(&chain, id).await.unwrap().allowed);
    let costs = [Cost::new(1).unwrap()];
    assert_eq!(store.settle(&chain, id, &costs).await.unwrap().verdict, Verdict::Done);
    let marker = "spile:{ann}:reservation:00000000000000000000000000000007";
    for amounts in ["-5", "", "x,7", "9007199254740993000"] {
        server.command(&["HSET", marker, "a", amounts]);
        let again = store.settle(&chain, id, &costs).await.unwrap();
        let most = Amount::from_micro(6_000_000_000_000_000);
        let expected = if amounts.starts_with('9') { most } else { Amount::ZERO };
        assert_eq!((again.verdict, &again.settled[..]), (Verdict::Before, &[expected][..]), "{amounts}");
    }
    for state in [&["u", "x"][..], &["v", "nonsense"]] {
        server.command(&[&["HSET", marker], state].concat());
        let verdict = store.settle(&chain, id, &costs).await.unwrap().verdict;
        assert_eq!(verdict, Verdict::Unknown, "what cannot be read gives nothing back: {state:?}");
    }
}
