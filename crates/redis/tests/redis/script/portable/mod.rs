//! The portable script does what the store does: same replies, same fields, same time to live.

mod clients;
mod vectors;

use std::time::Duration;

use fastrand::Rng;
use spile_core::{
    Charge, Charges, Decision, DecisionSource, FakeClock, Micros, Outcome, StoreError, StoreExt,
};
use spile_redis::{PORTABLE_SCRIPT, RedisStore, TimeSource};
use spile_testkit::redis::{Flavour, RedisClient, RedisReply, RedisServer, ReplyError};

use crate::common::{PATIENT, charge};

/// The longest wait that the script reports.
const LAST_US: u128 = (1 << 53) - 1;

/// A call of the script, by the limits of a chain.
pub(super) struct PortableCall {
    keys: Vec<String>,
    arguments: Vec<String>,
}

impl PortableCall {
    /// The call for rates of one key.
    pub(super) fn new(charges: &Charges<'_>, now: Micros) -> Self {
        let mut keys: Vec<String> = Vec::new();
        let mut arguments = vec![now.get().to_string()];
        for charge in charges.iter() {
            let limit = charge.limit().limit();
            let rate = limit.rate().expect("the script knows rates only");
            let (hash, name) = place(charge);
            let known = keys.iter().position(|key| *key == hash).unwrap_or(keys.len());
            if known == keys.len() {
                keys.push(hash);
            }
            arguments.extend([(known + 1).to_string(), name.to_owned()]);
            let amounts = [limit.capacity(), rate.refill(), limit.quantum(), charge.cost().amount()];
            let [capacity, refill, quantum, cost] = amounts.map(|amount| amount.micro().to_string());
            let period = rate.period().as_micros().to_string();
            arguments.extend([capacity, refill, period, quantum, cost]);
        }
        Self { keys, arguments }
    }

    pub(super) fn run(&self, client: &mut RedisClient) -> Result<Vec<i64>, ReplyError> {
        let count = self.keys.len().to_string();
        let mut command = vec!["EVAL", PORTABLE_SCRIPT, &count];
        command.extend(self.keys.iter().chain(&self.arguments).map(String::as_str));
        let reply = client.command(&command)?;
        Ok(reply.list().iter().map(RedisReply::int).collect())
    }
}

/// The script's reply, derived from the outcome of a store.
pub(super) fn portable_reply(charges: &Charges<'_>, outcome: &Outcome) -> Vec<i64> {
    let us = |time: Duration| time.as_micros().min(LAST_US) as i64;
    let decision = Decision::from_outcome(charges, outcome, DecisionSource::Store);
    let denied_by = if outcome.allowed { 0 } else { i64::from(decision.binding_index() as u32) + 1 };
    let at = outcome.at.get().cast_signed();
    let mut numbers = vec![outcome.allowed.into(), at, denied_by, us(decision.retry_after())];
    for (status, bucket) in decision.limits().iter().zip(outcome.buckets.iter()) {
        numbers.extend([bucket.available(status.limit(), outcome.at).micro(), us(status.reset_after())]);
    }
    numbers
}

/// The hash of a charge, and the name of its bucket there. For keys that only need some of their bytes escaped.
pub(super) fn place<'c>(charge: &'c Charge<'_>) -> (String, &'c str) {
    let name = charge.limit().name().as_str();
    let (plan, name) = name.split_once('/').unwrap_or((name, ""));
    (hash_key(charge.key().as_str(), plan), name)
}

/// The Redis key of a plan's hash, or of anything else beside it.
pub(super) fn hash_key(key: &str, plan: &str) -> String {
    let tag = key.replace('%', "%25").replace('{', "%7B").replace('}', "%7D").replace(':', "%3A");
    format!("spile:{{{tag}}}:{plan}")
}

/// The moment of every question about a random state.
const NOW: Micros = Micros::from_secs(1_000_000);
const LIMITS: [(&str, &str); 3] =
    [("gold/burst", "10, 1/h"), ("gold/daily", "100, 7/day"), ("free", "3, 3/s")];
const HASHES: [(&str, &[&str]); 2] = [
    ("spile:{ann}:gold", &["burst:t", "burst:ts", "daily:t", "daily:ts"]),
    ("spile:{ann}:free", &["t", "ts"]),
];
const AMOUNTS: [&str; 12] = [
    "0",
    "2000000",
    "5000001",
    "-3000000",
    "90000000",
    "2000000000000001",
    "nan",
    "1e308",
    "0.5",
    "",
    "0x10",
    "7 ",
];
const TIMES: [&str; 9] = [
    "0",
    "999990000000",
    "1000000000000",
    "1000000500000",
    "1000003000000",
    "inf",
    "-7",
    "1e15",
    "9007199254740992",
];
const VERSIONS: [&str; 8] = ["1", "1", "1", "1", "0", "x", "1.5", "2"];
const LIVES_MS: [&str; 4] = ["5000", "50000", "5000000", "5000000000"];

/// All that a server keeps: each key with its type, its fields and its time to live. And how long the server's clock says that it took
/// to get there.
#[derive(Debug)]
struct Found {
    keys: Vec<(String, String, Vec<String>)>,
    lives_ms: Vec<i64>,
    took_ms: i64,
}

#[tokio::test]
async fn any_state_is_read_repaired_and_kept_as_the_store_does() {
    let seed = std::env::var("SPILE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).start();
        let clock = TimeSource::client(FakeClock::at(NOW));
        let store =
            RedisStore::builder(server.url()).timeout(PATIENT).time(clock).build().expect("a sound URL");
        let mut client = server.connect().expect("the server answers");
        let mut random = Rng::with_seed(seed);
        for _ in 0..1_500 {
            let (state, charges) = (state(&mut random), chain(&mut random));
            let context = format!("{flavour:?}, seed {seed}: {state:?} {charges:?}");
            let started = prepare(&mut client, &state);
            let outcome = store.spend(&charges).await;
            let by_store = Found::since(started, &mut client);
            let started = prepare(&mut client, &state);
            let reply = PortableCall::new(&charges, NOW).run(&mut client);
            let by_script = Found::since(started, &mut client);
            match (&reply, &outcome) {
                (Ok(reply), Ok(outcome)) => {
                    assert_eq!(*reply, portable_reply(&charges, outcome), "{context}");
                }
                (Err(ReplyError::Refused(why)), Err(StoreError::BadTypes(_))) => {
                    assert!(why.starts_with("NEWERFORMAT limit "), "{context}: {why}");
                }
                _ => panic!("{context}: {reply:?} {outcome:?}"),
            }
            assert_eq!(by_script.keys, by_store.keys, "{context}");
            let tolerance = by_script.took_ms.max(by_store.took_ms) + 1;
            for (script_ms, store_ms) in by_script.lives_ms.iter().zip(&by_store.lives_ms) {
                let difference = script_ms - store_ms;
                assert!(difference.abs() <= tolerance, "{context}: {script_ms} ms, not {store_ms} ms");
            }
        }
    }
}

/// Commands that leave two hashes in any state: well, broken, absent, or written by a newer instance.
fn state(random: &mut Rng) -> Vec<Vec<&'static str>> {
    let mut commands = Vec::new();
    for (hash, fields) in HASHES {
        match random.u32(..16) {
            0 => commands.push(vec!["SET", hash, "x"]),
            1 => commands.push(vec!["LPUSH", hash, "x"]),
            2 => {}
            shape => {
                let mut command = vec!["HSET", hash];
                for field in fields.iter().filter(|_| random.u32(..4) > 0).collect::<Vec<_>>() {
                    let values: &[&str] = if field.ends_with('s') { &TIMES } else { &AMOUNTS };
                    // Every other state is one that the store writes itself.
                    let choices = if shape % 2 == 0 { 5 } else { values.len() };
                    command.extend([*field, values[random.usize(..choices)]]);
                }
                let version = VERSIONS[random.usize(..VERSIONS.len())];
                if random.u32(..8) > 0 || command.len() == 2 {
                    command.extend(["v", version]);
                }
                // If a hash has no version and no field that is read, the store takes it for a new one and does not read its time to live.
                let is_live = command.ends_with(&["v", "1"]);
                commands.push(command);
                if !is_live {
                    continue;
                }
            }
        }
        if random.bool() {
            commands.push(vec!["PEXPIRE", hash, LIVES_MS[random.usize(..LIVES_MS.len())]]);
        }
    }
    commands
}

/// Up to three limits in any order, each at any cost that can pass.
fn chain(random: &mut Rng) -> Charges<'static> {
    let mut limits = LIMITS;
    random.shuffle(&mut limits);
    let asked = limits
        .iter()
        .take(random.usize(1..=3))
        .map(|(name, limit)| charge("ann", name, limit, random.u64(..4)));
    Charges::new(asked.collect::<Vec<_>>()).expect("a short chain")
}

/// Leaves this state and nothing else. Returns the server's time before.
fn prepare(client: &mut RedisClient, state: &[Vec<&str>]) -> i64 {
    let started = time_ms(client);
    client.command(&["FLUSHALL"]).expect("no rule forbids it");
    for command in state {
        client.command(command).expect("a sound command");
    }
    started
}

fn time_ms(client: &mut RedisClient) -> i64 {
    let time = client.command(&["TIME"]).expect("no rule forbids it");
    time.list()[0].int() * 1_000 + time.list()[1].int() / 1_000
}

impl Found {
    fn since(started_ms: i64, client: &mut RedisClient) -> Self {
        let mut ask = |words: &[&str]| client.command(words).expect("no rule forbids it");
        let lives_ms = HASHES.map(|(hash, _)| ask(&["PTTL", hash]).int()).to_vec();
        let mut keys = Vec::new();
        for (hash, _) in HASHES {
            let kind = ask(&["TYPE", hash]).text().to_owned();
            let fields = if kind == "hash" { ask(&["HGETALL", hash]) } else { RedisReply::Nil };
            let pairs = fields.list().chunks(2).map(|pair| format!("{} {}", pair[0].text(), pair[1].text()));
            let mut pairs: Vec<_> = pairs.collect();
            pairs.sort();
            keys.push((hash.to_owned(), kind, pairs));
        }
        Self { keys, lives_ms, took_ms: time_ms(client) - started_ms }
    }
}

#[test]
fn an_argument_out_of_bounds_is_refused_and_nothing_is_written() {
    let server = RedisServer::start();
    let mut client = server.connect().expect("the server answers");
    let good = ["1000000", "1", "burst", "10000000", "1000000", "1000000", "1000000", "1000000"];
    let mut run = |arguments: &[&str]| {
        let command = [&["EVAL", PORTABLE_SCRIPT, "1", HASHES[0].0], arguments].concat();
        client.command(&command).map_err(|why| why.to_string())
    };
    let bad = [
        (0, &["", "x", "-1", "0.5", "nan", "9007199254740992"][..]),
        (1, &["", "0", "2", "x"]),
        (3, &["", "0", "-1", "0.5", "nan", "999999", "1000000000000001"]),
        (4, &["", "0", "0.5", "inf", "1000000000000001"]),
        (5, &["", "0", "0.5", "-1", "31561920000001"]),
        (6, &["", "0", "0.5", "10000001"]),
        (7, &["", "-1", "0.5", "nan"]),
    ];
    for (position, values) in bad {
        for value in values {
            let mut arguments = good;
            arguments[position] = value;
            let why = run(&arguments).expect_err(value);
            assert!(why.starts_with("BADARGS limit 1 "), "{position} {value:?}: {why}");
        }
    }
    for length in 0..good.len() {
        let why = run(&good[..length]).expect_err("too few");
        assert!(why.starts_with("BADARGS limit 1 "), "{length}: {why}");
    }
    let twice = run(&[&good[..], &good[1..]].concat()).expect_err("one bucket twice");
    assert!(twice.starts_with("BADARGS limit 2 "), "{twice}");
    let mut fast = good;
    (fast[4], fast[5]) = ("1000000000000000", "999999");
    let why = run(&fast).expect_err("more than a billion tokens a second");
    assert!(why.starts_with("BADARGS limit 1 "), "{why}");
    let mut dear = good;
    dear[7] = "10000001";
    let why = run(&dear).expect_err("more than the capacity");
    assert!(why.starts_with("ABOVECAPACITY limit 1 "), "{why}");
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
    server.command(&["ACL", "SETUSER", "default", "-hmget"]);
    let why = run(&good).expect_err("a command that the user may not run");
    assert!(why.contains("can't run this command"), "{why}");
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
    server.command(&["ACL", "SETUSER", "default", "+hmget"]);
    run(&good).expect("all arguments are within bounds");
    assert_eq!(server.command(&["DBSIZE"]).int(), 1);
}
