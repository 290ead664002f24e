//! Reservations and refunds of a chain over two nodes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use spile_calendar::CalendarLimit;
use spile_core::{
    Amount, Charge, Charges, Cost, FakeClock, Key, Limit, LimitName, Micros, NamedLimit, RefundId,
    ReservationId, SpendTime, StoreExt, Verdict,
};
use spile_redis::{RedisStore, TimeSource};
use spile_testkit::redis::RedisCluster;
use spile_testkit::wait;

use super::split_permits::{allow_scripts, keys_on_two_nodes, refuse_scripts};
use crate::common::{charge, patient};

const LIMIT: &str = "1000, 1/h";

fn id(number: u128) -> ReservationId {
    ReservationId::new(number, Duration::from_secs(600)).unwrap()
}

fn costs(tokens: [u64; 2]) -> [Cost; 2] {
    tokens.map(|tokens| Cost::new(tokens).unwrap())
}

async fn left(store: &RedisStore, chain: &Charges<'_>) -> Vec<u64> {
    let shown = store.peek(chain).await.unwrap();
    shown.buckets.iter().map(|bucket| bucket.amount().whole_tokens()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_over_two_nodes_is_settled_once_by_one_amount_however_many_race() {
    let cluster = RedisCluster::of_masters(3);
    let store = patient(&cluster.url()).build().unwrap();
    let [(one, _), (two, _)] = keys_on_two_nodes(&cluster);
    // In both orders of the two nodes.
    for (round, keys) in (0..30).zip([[one, two], [two, one]].into_iter().cycle()) {
        let chain = Charges::new(keys.map(|key| charge(key, "limit", LIMIT, 20))).unwrap();
        let before = left(&store, &chain).await;
        assert!(store.reserve(&chain, id(round)).await.unwrap().allowed);
        let tokens = [[1, 2], [3, 4], [25, 26], [0, 9]];
        let asked = tokens.map(costs);
        let racing = asked.iter().map(|costs| store.settle(&chain, id(round), costs));
        let settled = join_all(racing).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        let done = settled.iter().filter(|one| one.verdict == Verdict::Done).count();
        assert_eq!(done, 1, "round {round}");
        let amounts = &settled[0].settled;
        assert!(settled.iter().all(|one| one.settled == *amounts), "round {round}: {settled:?}");
        let after: Vec<_> =
            before.iter().zip(amounts).map(|(before, amount)| before - amount.whole_tokens()).collect();
        assert_eq!(left(&store, &chain).await, after, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_was_interrupted_is_completed_at_its_first_amount() {
    let cluster = RedisCluster::of_masters(3);
    let store = patient(&cluster.url()).build().unwrap();
    let [(one, _), (two, second)] = keys_on_two_nodes(&cluster);
    let second = &cluster.nodes()[second];
    let chain = Charges::new([one, two].map(|key| charge(key, "limit", LIMIT, 20))).unwrap();
    assert!(store.reserve(&chain, id(1)).await.unwrap().allowed);
    refuse_scripts(second);
    store.settle(&chain, id(1), &costs([5, 6])).await.unwrap_err();
    allow_scripts(second);
    assert_eq!(left(&store, &chain).await, [995, 980], "the second key waits to be settled");
    for _ in 0..2 {
        let settled = store.settle(&chain, id(1), &costs([30, 40])).await.unwrap();
        assert_eq!(settled.verdict, Verdict::Before);
        assert_eq!(settled.settled[..], costs([5, 6]).map(Cost::amount));
        assert_eq!(left(&store, &chain).await, [995, 994]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_that_one_node_denies_is_given_back_on_the_other() {
    let cluster = RedisCluster::of_masters(3);
    let store = patient(&cluster.url()).build().unwrap();
    for keys in [keys_on_two_nodes(&cluster), {
        let [a, b] = keys_on_two_nodes(&cluster);
        [b, a]
    }] {
        let [(free, _), (drained, _)] = keys;
        let chain = |cost| {
            Charges::new([charge(free, "limit", LIMIT, cost), charge(drained, "limit", "10, 1/h", cost)])
        };
        let before = left(&store, &chain(0).unwrap()).await[0];
        let all: Charges<'_> = charge(drained, "limit", "10, 1/h", 10).into();
        assert!(store.spend(&all).await.unwrap().allowed);
        let denied = store.reserve(&chain(4).unwrap(), id(2)).await.unwrap();
        assert!(!denied.allowed);
        assert_eq!(left(&store, &chain(0).unwrap()).await, [before, 0]);
        store.settle(&chain(4).unwrap(), id(2), &costs([0, 0])).await.unwrap();
        assert_eq!(left(&store, &chain(0).unwrap()).await, [before, 0], "nothing is given back twice");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_with_an_id_over_two_nodes_is_given_once() {
    let cluster = RedisCluster::of_masters(3);
    let store = patient(&cluster.url()).build().unwrap();
    let [(one, _), (two, second)] = keys_on_two_nodes(&cluster);
    let second = &cluster.nodes()[second];
    let chain = |cost| Charges::new([one, two].map(|key| charge(key, "limit", LIMIT, cost))).unwrap();
    assert!(store.spend(&chain(20)).await.unwrap().allowed);
    let (spent, id) = (SpendTime::ThisWindow, RefundId::new("order 7").unwrap());
    refuse_scripts(second);
    store.refund_once(&chain(5), spent, id).await.unwrap_err();
    allow_scripts(second);
    assert!(
        store.refund_once(&chain(5), spent, id).await.unwrap().given,
        "the second key was not refunded yet"
    );
    assert!(!store.refund_once(&chain(5), spent, id).await.unwrap().given);
    assert_eq!(left(&store, &chain(0)).await, [985, 985]);
}

/// The first key is spent in one window, and the second one denies in the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_returns_no_quota_into_another_window() {
    let cluster = RedisCluster::of_masters(3);
    let [(sold, first), (drained, second)] = keys_on_two_nodes(&cluster);
    let (first, second) = (&cluster.nodes()[first], &cluster.nodes()[second]);
    let clock = FakeClock::at(Micros::from_secs(1_800_000_000));
    let store = patient(&cluster.url()).time(TimeSource::client(clock.clone())).build().unwrap();
    let store = Arc::new(store);
    let quota = |cost| {
        let limit = Limit::quota(5).per_minute().build().unwrap();
        let limit = NamedLimit::new(LimitName::new("minute").unwrap(), limit);
        Charge::new(Key::new(sold).unwrap(), limit, Cost::new(cost).unwrap()).unwrap()
    };
    let all: Charges<'_> = charge(drained, "limit", "10, 1/h", 10).into();
    assert!(store.spend(&all).await.unwrap().allowed);
    let before = first.command(&["DBSIZE"]).int();
    second.freeze();
    let other = Arc::clone(&store);
    let chain = Charges::new([quota(4), charge(drained, "limit", "10, 1/h", 1)]).unwrap();
    let denied = tokio::spawn(async move { other.spend(&chain).await });
    wait::until_true("the quota is spent", || first.command(&["DBSIZE"]).int() > before);
    clock.advance(Duration::from_secs(60));
    assert!(store.spend(&quota(5).into()).await.unwrap().allowed, "the next window is whole");
    second.thaw();
    assert!(!denied.await.unwrap().unwrap().allowed);
    let shown = store.peek(&quota(0).into()).await.unwrap();
    let quota = quota(0);
    let available = shown.buckets[0].available(quota.limit().limit(), shown.at);
    assert_eq!(available, Amount::ZERO, "four of the former window were given back to this one");
}
