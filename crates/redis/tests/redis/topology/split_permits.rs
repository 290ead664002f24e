//! Permits of a chain over two nodes of a cluster, one of which refuses what it is asked.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{
    Charge, Charges, Cost, Inspect, Key, Limit, LimitName, Micros, NamedLimit, PermitId, PermitStep,
    SpendTime, StoreExt,
};
use spile_testkit::redis::{RedisCluster, RedisServer};
use spile_testkit::wait;

use crate::common::{charge, patient};

/// Two keys on two nodes, in the order in which a chain asks for them.
pub(super) fn keys_on_two_nodes(cluster: &RedisCluster) -> [(&'static str, usize); 2] {
    let mut keys = ["ann", "bob", "eve", "joe", "kim"].map(|key| (cluster.slot_of(key), key));
    keys.sort_unstable();
    let [first, .., last] = keys.map(|(slot, key)| (key, cluster.master_of(slot)));
    assert_ne!(first.1, last.1, "both keys are on one node");
    [first, last]
}

fn place(key: &'static str) -> Charge<'static> {
    let limit = Limit::concurrent(1).hold(Duration::from_secs(600)).build().unwrap();
    let limit = NamedLimit::new(LimitName::new("jobs").unwrap(), limit);
    Charge::new(Key::new(key).unwrap(), limit, Cost::ONE).unwrap()
}

fn id(number: u128) -> PermitId {
    PermitId::new(Micros::from_secs(1_700_000_000), Duration::ZERO, number, "").unwrap()
}

fn keys_of(node: &RedisServer) -> i64 {
    node.command(&["DBSIZE"]).int()
}

pub(super) fn refuse_scripts(node: &RedisServer) {
    node.command(&["ACL", "SETUSER", "default", "-@scripting"]);
}

pub(super) fn allow_scripts(node: &RedisServer) {
    node.command(&["ACL", "SETUSER", "default", "+@all"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_is_released_again_if_its_node_refused_that_after_a_denial() {
    let cluster = RedisCluster::of_masters(3);
    let [(free, first), (taken, second)] = keys_on_two_nodes(&cluster);
    let (first, second) = (&cluster.nodes()[first], &cluster.nodes()[second]);
    let store = Arc::new(patient(&cluster.url()).build().unwrap());
    assert!(store.permit(&place(taken).into(), &id(1), PermitStep::Acquire).await.unwrap().allowed);
    let before = keys_of(first);
    second.freeze();
    let other = Arc::clone(&store);
    let denied = tokio::spawn(async move {
        let chain = Charges::new([place(free), place(taken)]).unwrap();
        other.permit(&chain, &id(2), PermitStep::Acquire).await
    });
    wait::until_true("the first place is taken", || keys_of(first) > before);
    refuse_scripts(first);
    second.thaw();
    assert!(!denied.await.unwrap().unwrap().allowed);
    assert!(keys_of(first) > before, "it could not be released");
    allow_scripts(first);
    wait::until_true("the first place is free again", || keys_of(first) == before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_one_of_two_nodes_refused_may_have_run() {
    let cluster = RedisCluster::of_masters(3);
    let [(free, _), (refused, node)] = keys_on_two_nodes(&cluster);
    let store = patient(&cluster.url()).build().unwrap();
    let chain = Charges::new([place(free), place(refused)]).unwrap();
    refuse_scripts(&cluster.nodes()[node]);
    let why = store.permit(&chain, &id(1), PermitStep::Retake).await.unwrap_err();
    assert_eq!(store.holders(&place(free).into()).await.unwrap()[0].len(), 1);
    assert!(why.may_have_run(), "{why}");
    let why = store.permit(&place(refused).into(), &id(2), PermitStep::Retake).await.unwrap_err();
    assert!(!why.may_have_run(), "{why}");
}

/// In both orders of the two nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_one_node_are_returned_only_if_a_permit_of_the_other_was_denied_or_ended() {
    let cluster = RedisCluster::of_masters(3);
    let store = patient(&cluster.url()).build().unwrap();
    let [(one, _), (two, _)] = keys_on_two_nodes(&cluster);
    for (paying, working) in [(one, two), (two, one)] {
        let tokens = charge(paying, "tokens", "10, 1/h", 3);
        let chain = Charges::new([tokens.clone(), place(working)]).unwrap();
        let left =
            async || store.peek(&tokens.clone().into()).await.unwrap().buckets[0].amount().whole_tokens();
        assert!(store.permit(&chain, &id(1), PermitStep::Acquire).await.unwrap().allowed);
        assert!(!store.permit(&chain, &id(2), PermitStep::Acquire).await.unwrap().allowed);
        assert_eq!(left().await, 7, "a denial returns what it took");
        assert!(
            !store.permit(&chain, &id(2), PermitStep::Release(SpendTime::Unknown)).await.unwrap().allowed
        );
        assert_eq!(left().await, 7, "a permit that is not held returns nothing");
        assert!(store.permit(&chain, &id(1), PermitStep::Release(SpendTime::Unknown)).await.unwrap().allowed);
        assert_eq!(left().await, 10, "a permit that ends returns what it took");
    }
}
