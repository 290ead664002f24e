//! Failovers, restarts and servers that are used again.

use spile_resp::Value;
use spile_sim::redis::{Refusals, Server};

fn send(server: &mut Server, command: &str) -> Value {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    server.execute(1_800_000_000_000_000, &words)
}

fn text(text: &str) -> Value {
    Value::Text(text.as_bytes().to_vec())
}

#[test]
fn a_snapshot_keeps_its_data_while_the_server_goes_on() {
    let mut server = Server::new();
    send(&mut server, "HSET h a 1");
    send(&mut server, "ZADD z 1 ann");
    let snapshot = server.data();
    send(&mut server, "HSET h a 2 b 3");
    send(&mut server, "DEL z");
    assert_eq!(server.data().len(), 1);
    assert_ne!(server.data(), snapshot);
    server.restore(snapshot.clone());
    assert_eq!(server.data(), snapshot);
    assert_eq!(send(&mut server, "HGETALL h"), Value::Array(vec![text("a"), text("1")]));
    assert_eq!(send(&mut server, "ZSCORE z ann"), text("1"));
    assert_eq!(snapshot.keys().collect::<Vec<_>>(), [b"h", b"z"]);
}

#[test]
fn a_cleared_server_knows_nothing() {
    let mut server = Server::new();
    let Value::Text(sha) = server.execute(1, &[b"SCRIPT", b"LOAD", b"return 7"]) else { panic!("it loads") };
    assert_eq!(server.execute(1, &[b"EVALSHA", &sha, b"0"]), Value::Int(7));
    send(&mut server, "SET k x");
    server.refuse(Refusals { read_only: true, ..Refusals::default() });
    server.clear();
    assert!(server.data().is_empty());
    assert_eq!(
        server.execute(1, &[b"EVALSHA", &sha, b"0"]),
        Value::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned())
    );
    assert_eq!(send(&mut server, "SET k x"), text("OK"));
}

#[test]
fn a_role_is_that_of_a_master_unless_writes_are_refused() {
    let mut server = Server::new();
    let role = |server: &mut Server| send(server, "ROLE").as_array().map(|parts| parts[0].clone());
    assert_eq!(role(&mut server), Some(text("master")));
    server.refuse(Refusals { read_only: true, ..Refusals::default() });
    assert_eq!(role(&mut server), Some(text("slave")));
}
