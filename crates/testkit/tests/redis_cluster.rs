//! What the Cluster fixture promises.

use spile_testkit::redis::{RedisCluster, Takeover};

#[test]
fn every_slot_is_served_and_every_takeover_moves_it() {
    let cluster = RedisCluster::start();
    let slot = cluster.slot_of("key");
    for how in [Takeover::Graceful, Takeover::Force, Takeover::Alone] {
        let before = cluster.master_of(slot);
        let after = cluster.fail_over(slot, how);
        assert_ne!(before, after, "{how:?}");
        assert_eq!(cluster.master_of(slot), after, "{how:?}");
        cluster.wait_until_whole();
    }
}

#[test]
fn a_killed_master_is_replaced_by_its_replica() {
    let mut cluster = RedisCluster::start();
    let slot = cluster.slot_of("key");
    let (master, replica) = (cluster.master_of(slot), cluster.replica_of(slot));
    cluster.node_mut(master).kill();
    cluster.wait_for_master(slot, replica);
    cluster.wait_until_whole();
    cluster.node_mut(master).restart();
    cluster.wait_until_whole();
    assert_eq!(cluster.master_of(slot), replica);
}

#[test]
fn a_moved_slot_takes_its_keys_along() {
    let cluster = RedisCluster::start();
    let slot = cluster.slot_of("key");
    let source = cluster.master_of(slot);
    let target = (source + 1) % 3;
    cluster.nodes()[source].command(&["SET", "key", "value"]);
    cluster.move_slot(slot, target);
    assert_eq!(cluster.nodes()[target].command(&["GET", "key"]).text(), "value");
    let refused = cluster.nodes()[source].try_command(&["GET", "key"]).expect_err("moved away");
    assert!(refused.to_string().starts_with("MOVED"), "{refused}");
}
