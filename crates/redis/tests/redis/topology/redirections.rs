//! What nodes of a cluster say in place of an answer: followed where it leads somewhere, and told where it does not.

use std::time::Duration;

use spile_core::{
    Amount, Charges, Clock, Cost, RefundId, ReservationId, SpendTime, StoreError, StoreExt, SystemClock,
    Verdict,
};
use spile_redis::RedisStore;
use spile_testkit::redis::{RedisCluster, RedisServer};
use spile_testkit::wait;

use crate::common::{charge, charges, patient};

const LIMIT: &str = "1000, 1/h";

fn calls(server: &RedisServer) -> u64 {
    let stats = server.info("commandstats", "cmdstat_evalsha").unwrap_or_default();
    let count = |field: &str| {
        let value = stats.split(',').find_map(|part| part.strip_prefix(field)?.strip_prefix('='));
        value.map_or(0, |digits| digits.parse::<u64>().expect("a count"))
    };
    count("calls") + count("rejected_calls")
}

fn all_calls(cluster: &RedisCluster) -> u64 {
    cluster.nodes().iter().map(calls).sum()
}

fn ids(cluster: &RedisCluster) -> Vec<String> {
    cluster.nodes().iter().map(|node| node.command(&["CLUSTER", "MYID"]).text().to_owned()).collect()
}

fn chain(keys: &[&'static str]) -> Charges<'static> {
    Charges::new(keys.iter().map(|name| charge("ann", name, LIMIT, 1))).unwrap()
}

async fn left(store: &RedisStore, names: &[&'static str]) -> Vec<u64> {
    let stands = store.peek(&chain(names)).await.unwrap();
    stands.buckets.iter().map(|bucket| bucket.amount().whole_tokens()).collect()
}

/// A slot that somebody began to move and left so, with whatever keys on either side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_is_decided_exactly_while_its_slot_moves_whatever_keys_exist() {
    let cluster = RedisCluster::of_masters(3);
    let slot = cluster.slot_of("spile:{ann}:a");
    let (from, to) = (cluster.master_of(slot), (cluster.master_of(slot) + 1) % 3);
    let (ids, number) = (ids(&cluster), slot.to_string());
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
    let store = RedisStore::builder(cluster.url()).build().unwrap();
    while store.spend(&chain(&["a", "b"])).await.is_err() {}
    let before = left(&store, &["a", "b"]).await;
    target.command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &ids[from]]);
    source.command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &ids[to]]);
    // One that exists at the source and moves, one that stays, and two that do not exist yet.
    let port = target.port().to_string();
    source.command(&["MIGRATE", "127.0.0.1", &port, "spile:{ann}:a", "0", "5000"]);
    let names = ["a", "b", "c", "d"];
    for round in 1..=40 {
        let outcome = store.spend(&chain(&names)).await;
        assert!(outcome.is_ok_and(|outcome| outcome.allowed), "round {round}: {:?}", store.trouble());
    }
    let expected = [before[0] - 40, before[1] - 40, 960, 960];
    assert_eq!(left(&store, &names).await, expected, "each was charged once per decision");
    let granted = store.spend_up_to(&chain(&names)).await.unwrap();
    assert_eq!(granted.granted, 1);
    store.refund(&chain(&names), SpendTime::ThisWindow).await.unwrap();
    assert_eq!(left(&store, &names).await, expected);
    let id = RefundId::new("an id").unwrap();
    assert!(store.refund_once(&chain(&names), SpendTime::ThisWindow, id).await.unwrap().given);
    assert!(
        !store.refund_once(&chain(&names), SpendTime::ThisWindow, id).await.unwrap().given,
        "once, also while the slot moves"
    );
    let refunded = expected.map(|left| left + 1);
    assert_eq!(left(&store, &names).await, refunded);
    for (number, actual, difference) in [(1, 1, 0), (2, 0, 1), (3, 9, -8)] {
        let id = ReservationId::new(number, Duration::from_secs(60)).unwrap();
        assert!(store.reserve(&chain(&names), id).await.unwrap().allowed);
        let before = left(&store, &names).await;
        for verdict in [Verdict::Done, Verdict::Before] {
            let costs = [Cost::new(actual).unwrap(); 4];
            let outcome = store.settle(&chain(&names), id, &costs).await.unwrap();
            assert_eq!(
                (outcome.verdict, outcome.uncovered),
                (verdict, Amount::ZERO),
                "once, also while the slot moves"
            );
            assert_eq!(outcome.settled[..], costs.map(Cost::amount));
            let after = before.iter().map(|left| left.wrapping_add_signed(difference)).collect::<Vec<_>>();
            assert_eq!(left(&store, &names).await, after);
        }
        let used = names.map(|name| charge("ann", name, LIMIT, actual));
        store.refund(&Charges::new(used).unwrap(), SpendTime::ThisWindow).await.unwrap();
    }
    assert!(store.spend(&chain(&names)).await.unwrap().allowed);
    // Requests of one slot that come at once share a call until it moves. None may take another's redirection for its own.
    let alone = |name: &'static str| {
        let store = store.clone();
        tokio::spawn(async move { store.spend(&chain(&[name])).await.map(|outcome| outcome.allowed) })
    };
    let asked: Vec<_> = ["a", "b", "c", "e", "f", "b"].map(alone).into_iter().collect();
    for answer in asked {
        assert!(answer.await.unwrap().unwrap());
    }
    assert_eq!(left(&store, &["a", "b", "c"]).await, [before[0] - 41, before[1] - 42, 959]);
    assert!(!store.stats().is_breaker_open());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_opens_the_breaker_and_is_found_again_when_it_is_up() {
    let cluster = RedisCluster::of_masters(3);
    let store = RedisStore::builder(cluster.url()).build().unwrap();
    while store.spend(&charges("ann", LIMIT, 1)).await.is_err() {}
    let slot = cluster.slot_of("spile:{ann}:limit");
    // A slot that no node serves, and all of them stop serving theirs.
    let other = (cluster.master_of(slot) + 1) % 3;
    let orphan = (0..16_384).find(|slot| cluster.master_of(*slot) == other).unwrap().to_string();
    for node in cluster.nodes() {
        node.command(&["CLUSTER", "DELSLOTS", &orphan]);
    }
    let says_down = |node: &RedisServer| node.command(&["CLUSTER", "INFO"]).text().contains("state:fail");
    wait::until_true("the cluster to be down", || cluster.nodes().iter().all(says_down));
    let before = all_calls(&cluster);
    let clock = SystemClock::new();
    let started = clock.now();
    for _ in 0..200 {
        assert!(store.spend(&charges("ann", LIMIT, 1)).await.is_err());
    }
    let took = Duration::from_micros(clock.now().since_us(started));
    assert!(store.stats().is_breaker_open(), "{:?}", store.stats());
    assert!(took < Duration::from_secs(1), "200 decisions took {took:?}");
    let asked = all_calls(&cluster) - before;
    assert!(asked < 100, "Redis was asked {asked} times for 200 decisions");

    cluster.nodes()[other].command(&["CLUSTER", "ADDSLOTS", &orphan]);
    cluster.wait_until_whole();
    let healed = clock.now();
    while store.spend(&charges("ann", LIMIT, 1)).await.is_err() {
        assert!(clock.now().since_us(healed) < 1_000_000, "{:?}", store.trouble());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_node_behind_a_plain_url_says_so_at_once() {
    let cluster = RedisCluster::of_masters(3);
    let slot = cluster.slot_of("spile:{ann}:limit");
    let elsewhere = (cluster.master_of(slot) + 1) % 3;
    let node = &cluster.nodes()[elsewhere];
    let store = patient(&node.url()).prefix("spile").build().unwrap();
    let before = calls(node);
    let why = store.spend(&charges("ann", LIMIT, 1)).await.unwrap_err();
    assert!(why.to_string().contains("redis-cluster://"), "{why}");
    assert!(!why.may_have_run());
    assert!(calls(node) - before <= 2, "{} calls", calls(node) - before);
    assert!(store.trouble().is_some_and(|why| why.contains("redis-cluster://")), "{:?}", store.trouble());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_send_a_request_to_each_other_are_not_followed_in_circles() {
    let cluster = RedisCluster::of_masters(3);
    let store = patient(&cluster.url()).prefix("spile").build().unwrap();
    assert!(store.spend(&charges("ann", LIMIT, 1)).await.unwrap().allowed);
    let slot = cluster.slot_of("spile:{ann}:limit");
    let (one, two) = (cluster.master_of(slot), (cluster.master_of(slot) + 1) % 3);
    let (ids, number) = (ids(&cluster), slot.to_string());
    cluster.nodes()[one].command(&["DEL", "spile:{ann}:limit"]);
    cluster.nodes()[one].command(&["CLUSTER", "SETSLOT", &number, "NODE", &ids[two]]);
    cluster.nodes()[two].command(&["CLUSTER", "SETSLOT", &number, "NODE", &ids[one]]);
    let before = all_calls(&cluster);
    let answer = store.spend(&charges("ann", LIMIT, 1)).await;
    let asked = all_calls(&cluster) - before;
    assert!(asked <= 8, "asked {asked} times");
    if let Err(why) = answer {
        assert!(matches!(&why, StoreError::Unavailable { may_have_run: false, .. }), "{why}");
        assert!(why.to_string().contains("redirected"), "{why}");
    }
}
