//! Load of our own making and nodes that are slow or far away: overload is not failure, and failure is told from it.

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

#[path = "../redis/common.rs"]
#[allow(dead_code, reason = "it uses a part of this")]
mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{charge, charges, patient};
use futures_util::future::join_all;
use spile_core::{Charges, Clock, StoreError, StoreExt, SystemClock};
use spile_redis::{RedisStore, Script};
use spile_testkit::proxy::{Mode, Proxy};
use spile_testkit::redis::{RedisCluster, RedisSentinel, RedisServer};
use spile_testkit::wait;
use tokio::net::TcpListener;

const LIMIT: &str = "100000, 100/h";

/// What a decision may take beyond the 50 ms that it has.
const GRACE: Duration = Duration::from_millis(20);

/// How soon a node that can be reached again serves.
const RECOVERY: Duration = Duration::from_secs(1);

/// These tests are about time, so that one must not take another's.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn timed<T>(step: impl Future<Output = T>) -> (T, Duration) {
    let clock = SystemClock::new();
    let started = clock.now();
    let done = step.await;
    (done, Duration::from_micros(clock.now().since_us(started)))
}

async fn until_all_spend(store: &RedisStore, keys: &[String]) {
    for key in keys {
        while store.spend(&charges(key, LIMIT, 1)).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}

/// Far more than Redis decides in 50 ms, all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_behind_our_own_queue_never_opens_the_breaker() {
    let _alone = ALONE.lock().await;
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).max_waiting(1_000_000).build().unwrap();
    until_all_spend(&store, &["warm".to_owned()]).await;
    let callers = (0..30_000).map(|caller| {
        let store = store.clone();
        tokio::spawn(async move {
            let key = format!("caller {caller}");
            let chain = (0..4).map(|limit| charge(&key, &format!("limit{limit}"), LIMIT, 1));
            let answer = store.spend(&Charges::new(chain).unwrap()).await;
            (answer, store.stats().is_breaker_open())
        })
    });
    let answers = join_all(callers.collect::<Vec<_>>()).await;
    let mut unsent = 0;
    for answer in answers {
        let (answer, breaker_open) = answer.unwrap();
        assert!(!breaker_open, "Redis is well");
        match answer {
            Ok(_) | Err(StoreError::TimedOut(_)) => {}
            Err(StoreError::Overloaded(_)) => unsent += 1,
            Err(why) => panic!("{why}"),
        }
    }
    assert!(unsent > 1_000, "the backlog was longer than the deadline: {unsent}");
    assert!(store.spend(&charges("bystander", LIMIT, 1)).await.unwrap().allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_sent_in_time_is_neither_asked_nor_charged() {
    let _alone = ALONE.lock().await;
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address()).await;
    let store = RedisStore::builder(proxy.url()).connections(1).flights(1).build().unwrap();
    until_all_spend(&store, &["warm".to_owned()]).await;
    proxy.set(Mode::Delay(Duration::from_millis(45)));
    let key = |caller: usize| format!("caller {caller}");
    let ask = async |caller: usize| store.spend(&charges(&key(caller), LIMIT, 1)).await;
    // The first flies alone; what came after it has 5 ms left when it lands, and what is beyond one flight has none.
    let answers = join_all((0..400).map(ask)).await;
    proxy.set(Mode::Pass);
    let near = patient(&server.url()).prefix("spile").build().unwrap();
    let mut refused = 0;
    for (caller, answer) in answers.iter().enumerate() {
        if let Err(StoreError::Overloaded(_)) = answer {
            refused += 1;
            let bucket = near.peek(&charges(&key(caller), LIMIT, 0)).await.unwrap().buckets[0];
            assert_eq!(bucket.amount().whole_tokens(), 100_000, "{} was charged", key(caller));
        }
    }
    assert!(refused > 0, "somebody waited too long");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_trip_of_four_fifths_of_the_deadline_leaves_at_most_one_in_a_hundred_to_the_policy() {
    let _alone = ALONE.lock().await;
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address()).await;
    for (callers, decisions) in [(1, 20), (12, 20), (64, 20)] {
        // Four times what ships, so that a busy machine is not taken for a long way.
        let store = RedisStore::builder(proxy.url()).timeout(Duration::from_millis(200)).build().unwrap();
        until_all_spend(&store, &["warm".to_owned()]).await;
        proxy.set(Mode::Delay(Duration::from_millis(160)));
        let caller = |caller: usize| {
            let store = store.clone();
            tokio::spawn(async move {
                let key = format!("{callers} {caller}");
                let mut failed = Vec::new();
                for _ in 0..decisions {
                    failed.extend(store.spend(&charges(&key, LIMIT, 1)).await.err());
                }
                failed
            })
        };
        let failed = join_all((0..callers).map(caller).collect::<Vec<_>>()).await;
        let why: Vec<_> = failed.into_iter().flat_map(Result::unwrap).collect();
        proxy.set(Mode::Pass);
        let asked = callers * decisions;
        let failed = why.len();
        assert!(failed * 100 <= asked, "{failed} of {asked} by policy, {callers} callers: {:?}", why.first());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_node_of_a_cluster_opens_its_own_breaker_and_no_other() {
    let _alone = ALONE.lock().await;
    let cluster = RedisCluster::of_masters(3);
    let store = RedisStore::builder(cluster.url()).build().unwrap();
    let keys: Vec<String> = (0..30).map(|key| format!("key {key}")).collect();
    until_all_spend(&store, &keys).await;
    let frozen = cluster.master_of(cluster.slot_of("spile:{key 0}:limit"));
    cluster.nodes()[frozen].freeze();
    // Each chain is over all nodes, and most of its time is lost at one.
    for _ in 0..40 {
        let chain = Charges::new(keys.iter().take(8).map(|key| charge(key, "limit", LIMIT, 1))).unwrap();
        assert!(store.spend(&chain).await.is_err());
        assert!(store.stats().breakers_open <= 1, "{:?}", store.stats());
    }
    cluster.nodes()[frozen].thaw();
}

/// Accepts, and never says a word.
async fn mute() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_holds_from_the_first_decision_at_a_store_that_never_answers() {
    let _alone = ALONE.lock().await;
    let (_listener, address) = mute().await;
    let (_other, second) = mute().await;
    for url in [
        format!("redis://{address}"),
        format!("redis-sentinel://{address},{second}/mymaster"),
        format!("redis-cluster://{address},{second}"),
    ] {
        let store = RedisStore::builder(&url).build().unwrap();
        let (first, took) = timed(store.spend(&charges("ann", LIMIT, 1))).await;
        assert!(first.is_err());
        assert!(took <= Duration::from_millis(50) + GRACE, "{url}: the first took {took:?}");
        // One more may begin before that is known. Those after it do not wait.
        let mut times = Vec::new();
        for _ in 0..10 {
            let (next, took) = timed(store.spend(&charges("ann", LIMIT, 1))).await;
            assert!(next.is_err());
            times.push(took);
        }
        assert!(times.iter().filter(|took| **took > GRACE).count() <= 1, "{url}: {times:?}");
    }
}

/// Everything that an instance says to Redis beside its decisions.
fn busy_sessions(store: &RedisStore) -> Vec<tokio::task::AbortHandle> {
    let mut tasks = Vec::new();
    for name in ["registry", "minutes", "totals"] {
        let session = Arc::new(store.session(name));
        let subscription = session.subscribe();
        let talk = async move {
            let script = Script::new("return 1");
            let _subscription = subscription;
            loop {
                let _ = session.run(&script, &[session.key("x")], &[], Duration::from_millis(200)).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tasks.push(tokio::spawn(talk).abort_handle());
    }
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_master_serves_within_a_second_of_being_known_with_every_session_on() {
    let _alone = ALONE.lock().await;
    let mut sentinel = RedisSentinel::start();
    let store = RedisStore::builder(sentinel.url()).build().unwrap();
    let key = ["ann".to_owned()];
    until_all_spend(&store, &key).await;
    let _sessions = busy_sessions(&store);
    for _ in 0..5 {
        sentinel.wait_for_replica();
        let master = sentinel.master();
        sentinel.nodes()[master].kill();
        sentinel.wait_for_switch(master);
        let ((), took) = timed(until_all_spend(&store, &key)).await;
        assert!(took <= RECOVERY, "it took {took:?}: {:?}", store.trouble());
        sentinel.nodes()[master].restart();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_four_masters_serve_within_a_second_of_coming_back_with_every_session_on() {
    let _alone = ALONE.lock().await;
    let cluster = RedisCluster::of_masters(24);
    let store = RedisStore::builder(cluster.url()).build().unwrap();
    let keys: Vec<String> = (0..240).map(|key| format!("key {key}")).collect();
    until_all_spend(&store, &keys).await;
    let _sessions = busy_sessions(&store);
    for _ in 0..5 {
        for node in cluster.nodes() {
            node.freeze();
        }
        for key in &keys {
            assert!(store.spend(&charges(key, LIMIT, 1)).await.is_err());
        }
        wait::until_true("every connection to be given up", || store.stats().connections == 0);
        for node in cluster.nodes() {
            node.thaw();
        }
        cluster.wait_until_whole();
        let ((), took) = timed(until_all_spend(&store, &keys)).await;
        assert!(took <= RECOVERY, "it took {took:?}: {:?}", store.trouble());
    }
}
