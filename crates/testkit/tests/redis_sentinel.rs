//! What the Sentinel fixture promises.

use spile_testkit::redis::RedisSentinel;

#[test]
fn a_failover_on_request_moves_the_master_and_what_it_held() {
    let mut sentinel = RedisSentinel::start();
    let first = sentinel.master();
    let mut connection = sentinel.nodes()[first].connect().expect("a connection");
    connection.command(&["SET", "key", "value"]).expect("a master takes writes");
    assert_eq!(connection.command(&["WAIT", "1", "5000"]).expect("a reply").int(), 1);
    sentinel.fail_over();
    let second = sentinel.master();
    assert_ne!(first, second);
    assert_eq!(sentinel.nodes()[second].command(&["GET", "key"]).text(), "value");
}

#[test]
fn a_killed_master_is_replaced_and_returns_as_a_replica() {
    let mut sentinel = RedisSentinel::start();
    let first = sentinel.master();
    sentinel.nodes()[first].kill();
    sentinel.wait_for_switch(first);
    assert_ne!(sentinel.master(), first);
    sentinel.nodes()[first].restart();
    sentinel.wait_for_replica();
}
