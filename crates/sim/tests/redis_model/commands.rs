//! Random commands on a few keys, of matching types and others, with matching arguments and others.

use fastrand::Rng;

use crate::pair::Pair;
use crate::scripts;

pub(crate) const KEYS: [&str; 8] = ["h1", "h2", "z1", "z2", "s1", "l1", "x1", "x2"];
const FIELDS: [&str; 4] = ["v", "t", "ts", "a longer name"];
const MEMBERS: [&str; 5] = ["ann", "bob", "cleo", "", "\u{e9}\u{1}"];
const SCORES: [&str; 11] = ["0", "1", "2", "-1", "3.5", "1e3", "9007199254740991", "inf", "-inf", "x", "nan"];
const BOUNDS: [&str; 10] = ["-inf", "+inf", "0", "(0", "1", "(1", "(2", "1000", "(9007199254740991", "("];
const TTLS: [&str; 9] =
    ["100000", "3600000", "3155760000000", "-1", "0", "x", "1.5", "9223372036854775807", "200000"];
const INDEXES: [&str; 6] = ["0", "1", "-1", "-2", "100", "x"];

/// A command, whose words in capitals stand for random ones.
const TEMPLATES: [&str; 58] = [
    "HSET HASH FIELD NUMBER",
    "HSET HASH v 1 t NUMBER ts NUMBER",
    "HSET HASH FIELD NUMBER FIELD",
    "HSET KEY FIELD NUMBER",
    "HMGET HASH v t ts",
    "hmget KEY v FIELD none",
    "HGET HASH FIELD",
    "HEXISTS KEY FIELD",
    "HDEL HASH FIELD",
    "HDEL KEY FIELD FIELD",
    "HLEN KEY",
    "HGETALL KEY",
    "ZADD ZSET SCORE MEMBER",
    "ZADD ZSET 1 ann 2 bob 3 cleo",
    "ZADD ZSET SCORE MEMBER SCORE MEMBER",
    "ZADD KEY SCORE MEMBER",
    "ZADD ZSET SCORE",
    "ZREM ZSET MEMBER",
    "ZREM KEY MEMBER MEMBER",
    "ZSCORE ZSET MEMBER",
    "ZSCORE KEY MEMBER",
    "ZCARD KEY",
    "ZCOUNT ZSET BOUND BOUND",
    "ZCOUNT KEY BOUND BOUND",
    "ZRANGEBYSCORE ZSET BOUND BOUND",
    "ZRANGEBYSCORE ZSET -inf +inf WITHSCORES LIMIT INDEX INDEX",
    "ZRANGEBYSCORE KEY BOUND BOUND WITHSCORES",
    "ZRANGEBYSCORE KEY BOUND BOUND BOUND",
    "ZREMRANGEBYSCORE ZSET BOUND BOUND",
    "ZREMRANGEBYSCORE KEY BOUND BOUND",
    "ZRANGE ZSET INDEX INDEX",
    "ZRANGE KEY INDEX INDEX WITHSCORES",
    "PTTL KEY",
    "PEXPIRE KEY TTL",
    "PEXPIRE HASH TTL",
    "PEXPIRE ZSET TTL",
    "DEL KEY",
    "DEL KEY KEY",
    "EXISTS KEY KEY",
    "TYPE KEY",
    "SET STRING NUMBER",
    "SET KEY NUMBER PX TTL",
    "SET STRING NUMBER PX TTL NX",
    "SET STRING NUMBER XX EX TTL",
    "SET STRING NUMBER NX XX",
    "GET KEY",
    "GET STRING",
    "LPUSH LIST NUMBER MEMBER",
    "LPUSH KEY NUMBER",
    "LLEN KEY",
    "PING",
    "PING NUMBER",
    "SELECT 0",
    "SELECT INDEX",
    "CLUSTER SLOTS",
    "NOSUCH KEY",
    "HLEN",
    "DEL",
];

pub(crate) fn run(pair: &mut Pair, random: &mut Rng) {
    let template = TEMPLATES[random.usize(..TEMPLATES.len())];
    let words: Vec<String> = template.split(' ').map(|word| draw(word, random)).collect();
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    let selects = template.starts_with("SELECT");
    match random.u32(0..16) {
        0..7 if !selects => scripts::run_command(pair, random, &words),
        7 => scripts::run_any(pair, random),
        _ => pair.compare(&words),
    }
    if selects {
        // The model has only the first database.
        pair.compare(&[b"SELECT", b"0"]);
    }
}

fn draw(word: &str, random: &mut Rng) -> String {
    let mut one = |from: &[&str]| from[random.usize(..from.len())].to_owned();
    match word {
        "KEY" => one(&KEYS),
        "HASH" => one(&KEYS[..2]),
        "ZSET" => one(&KEYS[2..4]),
        "STRING" => one(&KEYS[4..5]),
        "LIST" => one(&KEYS[5..6]),
        "FIELD" => one(&FIELDS),
        "MEMBER" => one(&MEMBERS),
        "SCORE" => one(&SCORES),
        "BOUND" => one(&BOUNDS),
        "TTL" => one(&TTLS),
        "INDEX" => one(&INDEXES),
        "NUMBER" => random.u32(0..1000).to_string(),
        other => other.to_owned(),
    }
}
