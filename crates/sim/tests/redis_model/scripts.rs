//! Scripts that run one command, and those that show how values are converted.

use fastrand::Rng;
use spile_resp::Value;

use crate::commands::KEYS;
use crate::pair::Pair;

/// Run one command, which is in `ARGV`.
const RUNNERS: [&str; 5] = [
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "return { 1, redis.pcall(unpack(ARGV)) }",
    "local reply = redis.pcall(unpack(ARGV)) return type(reply)",
    // Memory is only checked before the first write, even one that changes nothing.
    "redis.pcall('DEL', 'nothing') return redis.pcall(unpack(ARGV))",
];

/// Are about values. `KEYS[1]` is a key, and `ARGV[1]` is some `MessagePack`.
const VALUES: [&str; 42] = [
    "return { 1, 2.9, -2.9, 'x', true, false, 3 }",
    "return { 1, nil, 3 }",
    "return { 1, { 2, { 3, {} } } }",
    "return { one = 1, 2 }",
    "return nil",
    "return true",
    "return false",
    "return -3.7",
    "return 9007199254740991",
    "return { err = 'CODE text' }",
    "return { ok = 'fine' }",
    "return { { err = 'CODE text' }, { ok = 'fine' } }",
    "return redis.error_reply('FOO bar')",
    "return redis.error_reply('-FOO bar')",
    "return redis.status_reply('fine')",
    "return redis.call('NOSUCH')",
    "return redis.pcall('NOSUCH')",
    "return redis.call('HLEN')",
    "return redis.pcall('HLEN')",
    "return redis.pcall('EVAL', 'return 1', 0)",
    "return redis.pcall('AUTH', 'x')",
    "return undefined_name",
    "some_name = 1",
    "error('boom')",
    "return nil + 1",
    "return type(redis.call('TIME')[1])",
    "return { redis.call('GET', 'nothing') }",
    "return type(redis.call('GET', 'nothing'))",
    "return redis.call('PING')",
    "return redis.call('PING').ok",
    "return redis.sha1hex('abc')",
    "return { type(string), type(math.floor), type(redis.call), type(cmsgpack.unpack) }",
    "return { #KEYS, #ARGV, KEYS[1] }",
    "return { tostring(1e15), tostring(0.1), string.format('%d', 2^53 - 1), 7 % 3, -7 % 3 }",
    "return cmsgpack.unpack(ARGV[1])",
    "return { type(cmsgpack.unpack(ARGV[1])), tostring(#cmsgpack.unpack(ARGV[1])) }",
    "local out = {} for i, one in ipairs(cmsgpack.unpack(ARGV[1])) do out[i] = type(one) == 'table' and #one or type(one) .. tostring(one) end return out",
    "redis.call('SET', KEYS[1], 2000002) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], 12345678.5) return redis.call('GET', KEYS[1])",
    "return redis.pcall('SET', KEYS[1], {})",
    "local out = {} for i, n in ipairs({ 1e9, 1e12, 1e15, 1e16, 2.5, -1e9, 7 }) do
       redis.call('SET', KEYS[1], n) out[i] = redis.call('GET', KEYS[1])
     end return out",
    "return redis.pcall('ZRANGEBYSCORE', KEYS[1], '(' .. 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)",
];

/// `MessagePack` of an array with one value of each kind.
const PACKED: &[u8] = b"\xdd\0\0\0\x11\x07\xcd\x12\x34\xce\x12\x34\x56\x78\xcf\0\x1f\xff\xff\xff\xff\xff\xff\xd3\xff\xff\xff\xff\
\xff\xff\xff\xfe\xcb\x3f\xf8\0\0\0\0\0\0\xca\x3f\xc0\0\0\xd9\x03day\xa2ab\xc3\xc2\x92\x01\x02\x81\xa1a\x01\xe0\xd0\x80\xd1\x80\0\xcc\xff";

pub(crate) fn run_command(pair: &mut Pair, random: &mut Rng, words: &[&[u8]]) {
    let runner = RUNNERS[random.usize(..RUNNERS.len())];
    let head: [&[u8]; 3] = [b"EVAL", runner.as_bytes(), b"0"];
    // Times to live differ by the moment.
    if !words[0].eq_ignore_ascii_case(b"PTTL") {
        pair.compare(&[&head, words].concat());
    }
}

pub(crate) fn run_any(pair: &mut Pair, random: &mut Rng) {
    let source = VALUES[random.usize(..VALUES.len())].as_bytes();
    let key = KEYS[random.usize(..KEYS.len())].as_bytes();
    let end = if random.u32(0..4) == 0 { random.usize(1..PACKED.len()) } else { PACKED.len() };
    let packed = &PACKED[..end];
    match random.u32(0..8) {
        0 => pair.compare(&[b"SCRIPT", b"FLUSH"]),
        1 => pair.compare(&[b"EVAL", source, b"2", key]),
        2 => pair.compare(&[b"EVAL", source, b"-1", key]),
        3 => pair.compare(&[b"EVAL", source, b"x", key]),
        4 => {
            let [sha, model] = pair.send(&[b"SCRIPT", b"LOAD", source]);
            pair.expect_equal(&sha, &model);
            if let Value::Text(sha) = sha {
                pair.compare(&[b"SCRIPT", b"EXISTS", &sha, b"ffff"]);
                pair.compare(&[b"EVALSHA", &sha.to_ascii_uppercase(), b"1", key, packed]);
            }
        }
        5 => pair.compare(&[b"EVALSHA", b"ffffffffffffffffffffffffffffffffffffffff", b"0"]),
        _ => pair.compare(&[b"EVAL", source, b"1", key, packed]),
    }
}
