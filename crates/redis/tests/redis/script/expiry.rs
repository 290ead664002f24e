//! Every key goes in time, and none before its bucket would be full.

use std::time::Duration;

use fastrand::Rng;
use spile_core::{Charges, FakeClock, Inspect, Kept, Limit, SpendTime, StoreExt};
use spile_redis::{RedisStore, TimeSource};
use spile_testkit::redis::RedisServer;

use crate::common::{self, charges, patient};

const BUCKET: &str = "spile:{ann}:limit";

fn store(server: &RedisServer) -> RedisStore {
    patient(&server.url()).prefix("spile").build().expect("a sound URL")
}

fn ttl_ms(server: &RedisServer, key: &str) -> i64 {
    server.command(&["PTTL", key]).int()
}

/// Microseconds from the server's now until the bucket is full under `limit`, by the arithmetic of the core.
fn time_to_full_us(server: &RedisServer, limit: &Limit) -> u64 {
    let fields = server.command(&["HMGET", BUCKET, "t", "ts"]);
    let time = server.command(&["TIME"]);
    let number =
        |reply: &spile_testkit::redis::RedisReply| u64::try_from(reply.int()).expect("not below zero");
    let [held, written] = fields.list() else { panic!("two fields") };
    let [seconds, micros] = time.list() else { panic!("two parts") };
    let now = spile_core::Micros::new(number(seconds) * 1_000_000 + number(micros));
    let bucket = spile_core::Bucket::new(
        spile_core::Amount::from_micro(held.int()),
        spile_core::Micros::new(number(written)),
    );
    bucket.wait_for_us(limit, limit.capacity(), now)
}

#[tokio::test]
async fn a_new_bucket_lives_for_twice_the_seconds_it_takes_to_fill() {
    let server = RedisServer::start();
    let store = store(&server);
    for (limit, ttl) in
        [("10, 1/s", 20_000), ("10, 3/s", 8_000), ("1, 1000/s", 2_000), ("5, 5/day", 172_800_000)]
    {
        server.command(&["FLUSHALL"]);
        store.spend(&charges("ann", limit, 1)).await.unwrap();
        let lives = ttl_ms(&server, BUCKET);
        assert!((ttl - 1_000..=ttl).contains(&lives), "{limit} lives {lives} ms");
    }
}

#[tokio::test]
async fn the_time_for_which_each_bucket_is_kept_is_reported() {
    let server = RedisServer::start();
    let store = store(&server);
    let asked = charges("ann", "10, 1/s", 1);
    assert_eq!(store.kept(&asked).await.unwrap(), [Kept::Absent]);
    store.spend(&asked).await.unwrap();
    let kept = store.kept(&asked).await.unwrap();
    let [Kept::For(time)] = kept[..] else { panic!("the bucket is there: {kept:?}") };
    assert!(time <= Duration::from_secs(20) && time > Duration::from_secs(19), "{time:?}");
    server.command(&["PERSIST", BUCKET]);
    assert_eq!(store.kept(&asked).await.unwrap(), [Kept::UntilFull]);
}

/// However much of its life a key has left, and whatever limit it was last written under, a question leaves it long
/// enough, allowed or denied. Shortening its life by hand stands in for time that has passed.
#[tokio::test]
async fn no_question_leaves_a_bucket_that_expires_before_its_limit_has_filled_it() {
    let seed = fastrand::u64(..);
    let mut random = Rng::with_seed(seed);
    let server = RedisServer::start();
    let store = store(&server);
    let limits = ["10, 1/s", "10, 3/s", "100, 100/h", "1000, 1000/s", "3, 1/min", "1000000000, 1000000000/s"];
    for _ in 0..2_000 {
        let text = limits[random.usize(..limits.len())];
        let limit: Limit = text.parse().unwrap();
        let cost = random.u64(1..=limit.capacity().whole_tokens());
        let asked = charges("ann", text, cost);
        match random.u32(..4) {
            0 => drop(store.refund(&asked, SpendTime::ThisWindow).await.unwrap()),
            1 => drop(store.spend_up_to(&asked).await.unwrap()),
            _ => drop(store.spend(&asked).await.unwrap()),
        }
        if server.command(&["EXISTS", BUCKET]).int() == 0 {
            continue;
        }
        let lives = u64::try_from(ttl_ms(&server, BUCKET)).unwrap_or(0) * 1_000;
        let fills = time_to_full_us(&server, &limit);
        // The time to live is read a moment before the time to full, and in whole milliseconds.
        assert!(lives + 1_000 >= fills, "seed {seed}: {text} lives {lives} us and fills in {fills} us");
        if random.bool() {
            server.command(&["PEXPIRE", BUCKET, &random.u64(50..=200_000).to_string()]);
        }
    }
}

#[tokio::test]
async fn a_bucket_that_is_ahead_of_the_clock_lives_until_the_clock_has_caught_up_and_filled_it() {
    let server = RedisServer::start();
    let clock = FakeClock::default();
    let store =
        patient(&server.url()).prefix("spile").time(TimeSource::client(clock.clone())).build().unwrap();
    let key = "spile:{ann}:limit";
    store.spend(&charges("ann", "10, 10/s", 1)).await.unwrap();
    clock.step_back(Duration::from_millis(900));
    server.command(&["PEXPIRE", key, "1500"]);
    store.spend(&charges("ann", "10, 10/s", 9)).await.unwrap();
    assert!(ttl_ms(&server, key) > 1_900, "0.9 s to catch up and a second to fill");
}

#[tokio::test]
async fn a_time_to_live_that_is_long_enough_is_not_written_again() {
    let server = RedisServer::start();
    let store = store(&server);
    for _ in 0..50 {
        store.spend(&charges("ann", "100, 1/s", 1)).await.unwrap();
    }
    let calls = server.info("commandstats", "cmdstat_pexpire").expect("one was written");
    assert!(calls.starts_with("calls=1,"), "{calls}");
}

#[tokio::test]
async fn a_denial_by_a_slower_limit_keeps_a_drained_bucket_until_that_limit_has_filled_it() {
    let server = RedisServer::start();
    let store = store(&server);
    store.spend(&charges("ann", "10, 10/s", 10)).await.unwrap();
    let tightened = charges("ann", "10, 1/h", 1);
    store.peek(&tightened).await.unwrap();
    assert!(ttl_ms(&server, BUCKET) <= 2_000, "a peek writes nothing");
    assert!(!store.spend(&tightened).await.unwrap().allowed);
    assert!(ttl_ms(&server, BUCKET) > 10 * 3_600_000, "ten tokens at one an hour");
    assert_eq!(store.spend_up_to(&tightened).await.unwrap().granted, 0);
    assert!(!store.spend(&charges("ann", "10, 10/s", 10)).await.unwrap().allowed);
    let calls = server.info("commandstats", "cmdstat_pexpire").expect("two were written");
    assert!(calls.starts_with("calls=2,"), "one by the spend and one by the first denial: {calls}");
}

#[tokio::test]
async fn a_chain_that_is_denied_keeps_each_of_its_buckets_until_its_limit_has_filled_it() {
    let server = RedisServer::start();
    let store = store(&server);
    let chain = |limit, cost| {
        let charge = |name| common::charge("ann", name, limit, cost);
        Charges::new([charge("one"), charge("two")]).unwrap()
    };
    store.spend(&common::charge("ann", "one", "10, 10/s", 10).into()).await.unwrap();
    store.spend(&common::charge("ann", "two", "10, 10/s", 1).into()).await.unwrap();
    assert!(!store.spend(&chain("10, 1/h", 1)).await.unwrap().allowed);
    assert!(ttl_ms(&server, "spile:{ann}:one") > 10 * 3_600_000);
    assert!(ttl_ms(&server, "spile:{ann}:two") > 3_600_000);
}

#[tokio::test]
async fn of_two_limits_on_one_bucket_in_one_call_the_longer_time_to_live_holds() {
    let server = RedisServer::start();
    // One connection keeps the order in which requests are made.
    let store = patient(&server.url()).prefix("spile").connections(1).build().expect("a sound URL");
    store.spend(&charges("warms up", "10, 1/s", 1)).await.unwrap();
    for slow_first in [true, false] {
        server.command(&["FLUSHALL"]);
        let before = store.stats().calls;
        let (slow, fast) = (charges("ann", "100000, 2/s", 1), charges("ann", "1000, 1000/s", 1));
        let (first, second) = if slow_first { (&slow, &fast) } else { (&fast, &slow) };
        // Questions that come while the first call is in flight share the next.
        let ahead = charges("ahead", "10, 1/s", 1);
        let (_, first, second) = tokio::join!(store.spend(&ahead), store.spend(first), store.spend(second));
        assert!(first.unwrap().allowed && second.unwrap().allowed);
        assert!(store.stats().calls - before < 3, "the two share a call");
        assert!(ttl_ms(&server, BUCKET) > 50_000_000, "the slow one takes 50,000 s to fill");
    }
}

#[tokio::test]
async fn a_key_that_somebody_made_immortal_is_mortal_after_the_next_write() {
    let server = RedisServer::start();
    let store = store(&server);
    store.spend(&charges("ann", "10, 1/s", 1)).await.unwrap();
    server.command(&["PERSIST", BUCKET]);
    store.spend(&charges("ann", "10, 1/s", 1)).await.unwrap();
    assert!(ttl_ms(&server, BUCKET) > 0);
}

#[tokio::test]
async fn looking_being_denied_and_refunding_nobody_leave_no_key() {
    let server = RedisServer::start();
    let store = store(&server);
    store.peek(&charges("ann", "10, 1/s", 1)).await.unwrap();
    store.spend(&charges("ann", "10, 1/s", 0)).await.unwrap();
    store.refund(&charges("ann", "10, 1/s", 1), SpendTime::ThisWindow).await.unwrap();
    store.reset(&charges("ann", "10, 1/s", 1)).await.unwrap();
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
}
