//! Keys expire, and live on if the clock steps back before that is noticed.

use std::time::Duration;

use spile_resp::Value;
use spile_sim::redis::Server;
use spile_testkit::redis::Flavour;
use spile_testkit::wait;

use crate::pair::{Pair, now_us};

const TTL_MS: &[u8] = b"40";

#[test]
fn keys_expire_as_on_real_servers() {
    for flavour in Flavour::ALL {
        let mut pair = Pair::start(flavour, 0);
        pair.compare(&[b"SET", b"text", b"x", b"PX", TTL_MS]);
        pair.compare(&[b"HSET", b"hash", b"f", b"x"]);
        pair.compare(&[b"ZADD", b"set", b"1", b"x"]);
        pair.compare(&[b"PEXPIRE", b"hash", TTL_MS]);
        pair.compare(&[b"PEXPIRE", b"set", TTL_MS]);
        let end = now_us() + 60_000;
        wait::until_true("the keys to expire", || now_us() > end);
        for words in [&[b"HLEN" as &[u8], b"hash"], &[b"GET", b"text"], &[b"ZCARD", b"set"]] {
            pair.compare(words);
        }
        // New keys have no time to live.
        pair.compare(&[b"HSET", b"hash", b"f", b"x"]);
        pair.compare_data([b"hash".to_vec(), b"set".to_vec(), b"text".to_vec()]);
    }
}

const START_US: u64 = 1_800_000_000_000_000;

fn send(server: &mut Server, after: Duration, command: &str) -> Value {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    server.execute(START_US + after.as_micros() as u64, &words)
}

#[test]
fn a_key_exists_in_the_last_millisecond_of_its_time_to_live() {
    let mut server = Server::new();
    send(&mut server, Duration::ZERO, "SET k x PX 1000");
    assert_eq!(send(&mut server, Duration::from_millis(999), "PTTL k"), Value::Int(1));
    assert_eq!(send(&mut server, Duration::from_micros(1_000_999), "PTTL k"), Value::Int(0));
    assert_eq!(send(&mut server, Duration::from_millis(1_001), "PTTL k"), Value::Int(-2));
}

#[test]
fn a_clock_that_steps_back_lets_keys_live_longer_unless_they_were_seen_to_expire() {
    let mut server = Server::new();
    for key in ["seen", "unseen"] {
        send(&mut server, Duration::from_secs(60), &format!("SET {key} x PX 1000"));
    }
    assert_eq!(send(&mut server, Duration::from_secs(62), "GET seen"), Value::Nil);
    assert_eq!(send(&mut server, Duration::from_secs(50), "GET seen"), Value::Nil);
    assert_eq!(send(&mut server, Duration::from_secs(50), "PTTL unseen"), Value::Int(11_000));
}

#[test]
fn a_script_sees_one_moment() {
    let mut server = Server::new();
    let script: &[u8] = b"local time = redis.call('TIME') redis.call('SET', KEYS[1], 1, 'PX', 1) \
        return { time[1], time[2], redis.call('PTTL', KEYS[1]) }";
    let reply = server.execute(1_800_000_000_000_007, &[b"EVAL", script, b"1", b"k"]);
    let text = |text: &str| Value::Text(text.as_bytes().to_vec());
    assert_eq!(reply, Value::Array(vec![text("1800000000"), text("7"), Value::Int(1)]));
}
