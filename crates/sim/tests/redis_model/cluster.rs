//! Nodes of a cluster redirect as real ones do.

use std::rc::Rc;

use spile_resp::Value;
use spile_sim::redis::{ClusterNode, ClusterView, Server, slot_of};
use spile_testkit::redis::{RedisClient, RedisCluster, ReplyError};

const SET_ALL: &[u8] = b"for i = 1, #ARGV do redis.call('SET', ARGV[i], 1) end return #ARGV";

fn reply(reply: Result<Value, ReplyError>) -> Value {
    reply.unwrap_or_else(|why| Value::Error(why.to_string()))
}

/// The masters, as `CLUSTER SLOTS` lists them.
fn nodes(slots: &Value) -> Vec<ClusterNode> {
    let mut nodes: Vec<ClusterNode> = Vec::new();
    for range in slots.as_array().expect("ranges") {
        let [first, last, master, ..] = range.as_array().expect("a range") else { panic!("no master") };
        let [host, port, ..] = master.as_array().expect("a master") else { panic!("no address") };
        let host = host.as_str().expect("a host").to_owned();
        let number = |value: &Value| value.as_int().expect("a number") as u16;
        let (port, range) = (number(port), (number(first), number(last)));
        match nodes.iter_mut().find(|node| node.port == port) {
            Some(node) => node.slots.push(range),
            None => nodes.push(ClusterNode { host, port, slots: vec![range], replicas: Vec::new() }),
        }
    }
    nodes
}

/// Ranges without the ids of nodes and what later versions add to them.
fn ranges(slots: &Value) -> Vec<(i64, i64, Vec<Value>)> {
    let range = |range: &Value| {
        let parts = range.as_array().expect("a range");
        let number = |value: &Value| value.as_int().expect("a number");
        let address = |node: &Value| Value::Array(node.as_array().expect("a node")[..2].to_vec());
        (number(&parts[0]), number(&parts[1]), parts[2..].iter().map(address).collect())
    };
    let mut ranges: Vec<_> = slots.as_array().expect("ranges").iter().map(range).collect();
    ranges.sort_by_key(|(first, ..)| *first);
    ranges
}

#[test]
fn nodes_of_a_cluster_answer_as_real_ones() {
    let cluster = RedisCluster::of_masters(3);
    for real in cluster.nodes() {
        let mut client: RedisClient = real.connect().expect("the node answers");
        let slots = reply(client.send(&[b"CLUSTER", b"SLOTS"]));
        let nodes: Rc<[ClusterNode]> = nodes(&slots).into();
        let node = nodes.iter().position(|node| node.port == real.port()).expect("it is listed");
        let mut model = Server::new();
        model.cluster(Some(ClusterView { node, nodes: Rc::clone(&nodes) }));
        assert_eq!(ranges(&slots), ranges(&model.execute(1, &[b"CLUSTER", b"SLOTS"])));

        for number in 0..50 {
            let (one, tagged, other) =
                (format!("key{number}"), format!("x{{key{number}}}y"), format!("other{number}"));
            assert_eq!(slot_of(one.as_bytes()), cluster.slot_of(&one));
            let (one, tagged, other) = (one.as_bytes(), tagged.as_bytes(), other.as_bytes());
            let commands: [&[&[u8]]; 6] = [
                &[b"SET", one, b"1"],
                &[b"DEL", one, tagged],
                &[b"EXISTS", one, other],
                &[b"EVAL", b"return 1", b"0"],
                &[b"EVAL", SET_ALL, b"2", one, tagged, one, tagged],
                &[b"EVAL", SET_ALL, b"2", one, other, one, other],
            ];
            for words in commands {
                let real = reply(client.send(words));
                assert_eq!(real, model.execute(1, words), "{}", words.concat().escape_ascii());
            }
            // A script must not use keys of other nodes. Versions have different texts for it.
            let hidden: [&[u8]; 4] = [b"EVAL", SET_ALL, b"0", one];
            let is_error = |reply: &Value| matches!(reply, Value::Error(_));
            assert_eq!(is_error(&reply(client.send(&hidden))), is_error(&model.execute(1, &hidden)));
        }
    }
}
