//! A command that Redis refuses fails the decision that needs it, and no other decision of its call.

use futures_util::future::join_all;
use spile_core::{Charges, PermitId, PermitStep, StoreError, StoreExt};
use spile_redis::{RedisStore, RedisStoreBuilder};
use spile_testkit::redis::{Flavour, RedisReply, RedisServer};

use crate::common::{charges, patient};
use crate::script::permits::jobs;

const LIMIT: &str = "10, 1/h";

/// How many decisions share a flight with the one that is refused.
const NEIGHBOURS: u64 = 100;

/// A server with a user who may do what `rights` say.
fn server_with_user(flavour: Flavour, rights: &str) -> RedisServer {
    RedisServer::builder().flavour(flavour).line(format!("user app on >s3cret {rights}")).start()
}

/// One connection, so that what is asked at once shares a flight.
fn store_of_user(server: &RedisServer) -> RedisStoreBuilder {
    patient(&format!("redis://app:s3cret@{}", server.address())).prefix("spile").connections(1)
}

fn neighbours() -> Vec<String> {
    (0..NEIGHBOURS).map(|number| format!("neighbour {number}")).collect()
}

/// The remaining tokens of each neighbour, of ten.
async fn left(store: &RedisStore, keys: &[String]) -> Vec<u64> {
    let left = |key| async move {
        store.peek(&charges(key, LIMIT, 1)).await.unwrap().buckets[0].amount().whole_tokens()
    };
    join_all(keys.iter().map(|key| left(key))).await
}

/// Asks for one spend per neighbour and for `refused` in their midst, all at once. The neighbours are each charged once.
async fn fails_alone(store: &RedisStore, refused: impl Future<Output = Result<bool, StoreError>>) {
    let keys = neighbours();
    store.spend(&charges("warms up", LIMIT, 1)).await.unwrap();
    let spend = |key: &'static str| async move { store.spend(&charges(key, LIMIT, 1)).await };
    let keys_of = |range: std::ops::Range<usize>| {
        keys[range].iter().map(|key| spend(key.clone().leak())).collect::<Vec<_>>()
    };
    let ahead = charges("ahead", LIMIT, 1);
    // Questions that come while the first call is in flight share the next.
    let (_, before, refused, after) =
        tokio::join!(store.spend(&ahead), join_all(keys_of(0..50)), refused, join_all(keys_of(50..100)));
    let error = refused.expect_err("Redis refuses it");
    assert!(!error.may_have_run(), "{error}");
    for outcome in before.into_iter().chain(after) {
        assert!(outcome.expect("a neighbour is decided").allowed);
    }
    assert_eq!(left(store, &keys).await, [9; NEIGHBOURS as usize], "each is charged once");
}

#[tokio::test]
async fn without_the_right_to_zadd_only_the_permit_fails() {
    for flavour in Flavour::ALL {
        let server = server_with_user(flavour, "~* &* +@all -zadd");
        let store = store_of_user(&server).build().unwrap();
        let (jobs, id) = (
            jobs(1, 30),
            PermitId::new(spile_core::Micros::from_secs(1), std::time::Duration::ZERO, 1, "").unwrap(),
        );
        let acquired =
            async { store.permit(&jobs, &id, PermitStep::Acquire).await.map(|outcome| outcome.allowed) };
        fails_alone(&store, acquired).await;
        assert_eq!(server.command(&["EXISTS", "spile:{ann}:permits:limit"]).int(), 0, "{flavour:?}");
    }
}

#[tokio::test]
async fn without_the_right_to_a_key_only_that_key_fails() {
    for flavour in Flavour::ALL {
        let server = server_with_user(flavour, "~spile:{n* ~spile:{w* ~spile:{a* &* +@all");
        let store = store_of_user(&server).build().unwrap();
        let forbidden = charges("forbidden", LIMIT, 1);
        fails_alone(&store, async { store.spend(&forbidden).await.map(|outcome| outcome.allowed) }).await;
    }
}

/// A reset deletes, which nothing else of these does.
#[tokio::test]
async fn without_the_right_to_a_command_only_what_needs_it_fails() {
    for flavour in Flavour::ALL {
        let server = server_with_user(flavour, "~* &* +@all -hdel");
        let store = store_of_user(&server).build().unwrap();
        let used = charges("used", LIMIT, 3);
        store.spend(&used).await.unwrap();
        fails_alone(&store, async { store.reset(&used).await.map(|()| true) }).await;
        assert_eq!(store.peek(&used).await.unwrap().buckets[0].amount().whole_tokens(), 7, "{flavour:?}");
    }
}

#[tokio::test]
async fn without_memory_a_permit_that_has_ended_lets_no_other_be_taken() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).line("maxmemory-policy noeviction").start();
        let store = patient(&server.url()).prefix("spile").build().unwrap();
        let (jobs, id) = (
            jobs(1, 30),
            PermitId::new(spile_core::Micros::from_secs(1), std::time::Duration::ZERO, 1, "").unwrap(),
        );
        let set = "spile:{ann}:permits:limit";
        server.command(&["ZADD", set, "1000000", "ended"]);
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let error = store.permit(&jobs, &id, PermitStep::Acquire).await.expect_err("no memory");
        assert!(!error.may_have_run(), "{flavour:?} {error}");
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(server.command(&["ZSCORE", set, &id.to_string()]), RedisReply::Nil, "{flavour:?}");
        assert!(store.permit(&jobs, &id, PermitStep::Acquire).await.unwrap().allowed, "{flavour:?}");
        assert_eq!(server.command(&["ZCARD", set]).int(), 1, "{flavour:?}: the ended one is removed");
    }
}

/// Removing what is in the place of a set is a write that Redis always allows.
#[tokio::test]
async fn without_memory_what_is_no_set_of_permits_lets_none_be_taken() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).line("maxmemory-policy noeviction").start();
        let store = patient(&server.url()).prefix("spile").build().unwrap();
        let (jobs, id) = (
            jobs(1, 30),
            PermitId::new(spile_core::Micros::from_secs(1), std::time::Duration::ZERO, 1, "").unwrap(),
        );
        let set = "spile:{ann}:permits:limit";
        server.command(&["SET", set, "x"]);
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let error = store.permit(&jobs, &id, PermitStep::Acquire).await.expect_err("no memory");
        assert!(!error.may_have_run(), "{flavour:?} {error}");
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(server.command(&["GET", set]).text(), "x", "{flavour:?}: nothing was written");
        assert!(store.permit(&jobs, &id, PermitStep::Acquire).await.unwrap().allowed, "{flavour:?}");
        assert_eq!(store.stats().repairs, 1, "{flavour:?}");
    }
}

#[tokio::test]
async fn without_memory_denials_and_peeks_are_answered_and_nothing_else_is_charged() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).line("maxmemory-policy noeviction").start();
        let store = patient(&server.url()).prefix("spile").connections(1).build().unwrap();
        let keys = neighbours();
        for key in &keys[..50] {
            store.spend(&charges(key, LIMIT, 10)).await.unwrap();
        }
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let cost = charges("ahead", LIMIT, 1);
        let chains: Vec<Charges<'_>> = keys.iter().map(|key| charges(key, LIMIT, 1)).collect();
        let (_, spent, peeked) = tokio::join!(
            store.spend(&cost),
            join_all(chains.iter().map(|chain| store.spend(chain))),
            join_all(chains.iter().map(|chain| store.peek(chain))),
        );
        for (number, (spent, peeked)) in spent.into_iter().zip(peeked).enumerate() {
            assert_eq!(peeked.expect("a peek").allowed, number >= 50, "{flavour:?} {number}");
            match spent {
                Ok(outcome) => assert!(!outcome.allowed && number < 50, "{flavour:?} {number}"),
                Err(error) => assert!(number >= 50 && !error.may_have_run(), "{flavour:?} {number} {error}"),
            }
        }
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        let expected: Vec<u64> = (0..NEIGHBOURS).map(|number| if number < 50 { 0 } else { 10 }).collect();
        assert_eq!(left(&store, &keys).await, expected, "{flavour:?}");
    }
}
