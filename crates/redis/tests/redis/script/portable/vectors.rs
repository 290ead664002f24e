//! Vectors for clients in other languages: keys, limits, and calls with their replies. The model of the core makes them, and Redis agrees.
//! `SPILE_VECTORS=overwrite` writes the file.

use std::time::Duration;

use serde_json::{Map, Value, json};
use spile_core::{
    Amount, Charge, Charges, Cost, FakeClock, Key, Limit, LimitName, Micros, NamedLimit, Operation,
    RateBuilder, StoreExt,
};
use spile_redis::RedisStore;
use spile_testkit::redis::RedisServer;
use spile_testkit::store::ModelStore;

use super::{PortableCall, place, portable_reply};
use crate::common::PATIENT;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/script/portable-vectors.json");
const PAYER: &str = "user:123";

/// 2026-01-01T00:00:00Z.
const START_US: u64 = 1_767_225_600_000_000;

const LIMITS: [&str; 9] = [
    "10, 1/s",
    "100/min",
    "7, 3/h",
    "5, 5/day",
    "10, 3/s",
    "0.5, 0.25/h usd",
    "1.5, 30000/30days",
    "1, 1/3650days",
    "1000000000, 1000000000/s",
];

/// Calls one after the other. Each is at some microseconds after [`START_US`], for some limits at a cost in micro-tokens.
struct Sequence {
    name: &'static str,
    /// A late charge beforehand.
    debt: Option<Ask>,
    calls: &'static [(u64, &'static [Ask])],
}

/// The name of a limit, the limit, and the cost.
type Ask = (&'static str, &'static str, i64);

const SEQUENCES: &[Sequence] = &[
    Sequence {
        name: "a drained bucket denies until the wait that it reports has passed",
        debt: None,
        calls: &[
            (0, &[("free", "2, 3/s", 1_000_000)]),
            (0, &[("free", "2, 3/s", 1_000_000)]),
            (0, &[("free", "2, 3/s", 1_000_000)]),
            (333_333, &[("free", "2, 3/s", 1_000_000)]),
            (333_334, &[("free", "2, 3/s", 1_000_000)]),
        ],
    },
    Sequence {
        name: "a chain is charged whole or not at all, and the longest wait denies",
        debt: None,
        calls: &[
            (0, &[("gold/burst", "5, 1/s", 4_000_000), ("gold/daily", "9, 9/day", 4_000_000)]),
            (100, &[("gold/burst", "5, 1/s", 4_000_000), ("gold/daily", "9, 9/day", 4_000_000)]),
            (4_000_000, &[("gold/burst", "5, 1/s", 4_000_000), ("gold/daily", "9, 9/day", 4_000_000)]),
            (9_000_000, &[("gold/burst", "5, 1/s", 4_000_000), ("gold/daily", "9, 9/day", 4_000_000)]),
        ],
    },
    Sequence {
        name: "a chain of two plans has two hashes",
        debt: None,
        calls: &[
            (0, &[("free", "2, 1/min", 1_000_000), ("gold/burst", "5, 1/s", 2_000_000)]),
            (5, &[("gold/burst", "5, 1/s", 3_000_000), ("free", "2, 1/min", 1_000_000)]),
            (9, &[("gold/burst", "5, 1/s", 1), ("free", "2, 1/min", 1)]),
        ],
    },
    Sequence {
        name: "a cost of 0 asks for the quantum and spends nothing",
        debt: None,
        calls: &[
            (0, &[("free", "1, 1/min", 0)]),
            (0, &[("free", "1, 1/min", 1)]),
            (0, &[("free", "1, 1/min", 0)]),
            (0, &[("free", "1, 1/min usd", 0)]),
            (60, &[("free", "1, 1/min", 0)]),
        ],
    },
    Sequence {
        name: "a clock that steps back by up to a second refills nothing, by more it is followed",
        debt: None,
        calls: &[
            (5_000_000, &[("free", "3, 1/s", 3_000_000)]),
            (4_000_000, &[("free", "3, 1/s", 1_000_000)]),
            (3_999_999, &[("free", "3, 1/s", 1_000_000)]),
            (4_999_999, &[("free", "3, 1/s", 1_000_000)]),
        ],
    },
    Sequence {
        name: "a full bucket that is ahead of the clock needs no wait",
        debt: None,
        calls: &[(500_000, &[("free", "4, 1/s", 1_000_000)]), (0, &[("free", "3, 1/s", 0)])],
    },
    Sequence {
        name: "a limit that changes keeps the tokens up to the new capacity",
        debt: None,
        calls: &[
            (0, &[("free", "100, 1/s", 20_000_000)]),
            (0, &[("free", "10, 7/h", 1_000_000)]),
            (1_000_000, &[("free", "1000, 1/s", 9_000_000)]),
            (1_000_000, &[("free", "1000, 1/s", 2_000_000)]),
        ],
    },
    Sequence {
        name: "a debt is repaid first",
        debt: Some(("free", "3, 1/s", 5_000_000)),
        calls: &[
            (0, &[("free", "3, 1/s", 0)]),
            (2_999_999, &[("free", "3, 1/s", 0)]),
            (3_000_000, &[("free", "3, 1/s", 1_000_000)]),
        ],
    },
    Sequence {
        name: "a wait of centuries is exact",
        debt: Some(("free", "300000000, 300000000/s", 600_000_000_000_000)),
        calls: &[(1, &[("free", "27, 0.036001/s", 1_000_000)])],
    },
];

#[tokio::test]
async fn the_file_has_the_keys_of_the_store_and_the_replies_of_the_model() {
    let sequences = SEQUENCES.iter().map(sequence).collect();
    let made =
        [("keys", keys().await), ("limits", LIMITS.map(limit_vector).to_vec()), ("sequences", sequences)];
    if std::env::var_os("SPILE_VECTORS").is_some_and(|word| word == "overwrite") {
        std::fs::write(FILE, text(&made)).expect("the file is ours");
    }
    let file = file();
    for (part, values) in made {
        assert_eq!(file[part], Value::Array(values), "{part}: SPILE_VECTORS=overwrite writes the file");
    }
}

#[test]
fn redis_replies_and_stores_what_the_file_says() {
    let server = RedisServer::start();
    for sequence in file()["sequences"].as_array().expect("a list") {
        server.command(&["FLUSHALL"]);
        for (hash, fields) in sequence["before"].as_object().expect("hashes") {
            let fields: Vec<_> = fields.as_object().expect("fields").iter().collect();
            let pairs = fields.iter().flat_map(|(field, value)| [field.as_str(), word(value)]);
            server.command(&[vec!["HSET", hash], pairs.collect()].concat());
        }
        for call in sequence["calls"].as_array().expect("a list") {
            let reply = run(&server, &call["keys"], &call["arguments"]);
            assert_eq!(json!(reply), call["reply"], "{} {call}", sequence["name"]);
            let stored = call["stored"].as_object().expect("hashes");
            for (hash, fields) in stored {
                assert_eq!(json!(hash_fields(&server, hash)), *fields, "{} {call}", sequence["name"]);
            }
            assert_eq!(server.command(&["DBSIZE"]).int() as usize, stored.len());
        }
    }
}

#[test]
fn the_numbers_of_each_limit_give_its_time_to_live() {
    let server = RedisServer::start();
    for limit in file()["limits"].as_array().expect("a list") {
        server.command(&["FLUSHALL"]);
        let hash = format!("spile:{{{}}}:plan", limit["limit"]);
        let numbers = ["capacity", "refill", "period", "quantum", "quantum"].map(|name| limit[name].clone());
        let arguments = [vec![json!(START_US), json!(1), json!("")], numbers.to_vec()].concat();
        assert_eq!(run(&server, &json!([hash]), &json!(arguments))[0], 1, "{limit}");
        let lives = Duration::from_millis(server.command(&["PTTL", &hash]).int().unsigned_abs());
        let expected = Duration::from_millis(limit["ttl_ms"].as_u64().expect("a number"));
        assert!(lives <= expected && lives + Duration::from_secs(60) > expected, "{limit}: {lives:?}");
    }
}

/// Calls the script as a client would that reads the file.
fn run(server: &RedisServer, keys: &Value, arguments: &Value) -> Vec<i64> {
    let words = |values: &Value| -> Vec<String> {
        let values = values.as_array().expect("a list").iter();
        values.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect()
    };
    let call = PortableCall { keys: words(keys), arguments: words(arguments) };
    call.run(&mut server.connect().expect("the server answers")).expect("a sound call")
}

fn hash_fields(server: &RedisServer, hash: &str) -> Map<String, Value> {
    let reply = server.command(&["HGETALL", hash]);
    let pairs = reply.list().chunks(2);
    pairs.map(|pair| (pair[0].text().to_owned(), json!(pair[1].text()))).collect()
}

fn word(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn file() -> Value {
    let text = std::fs::read_to_string(FILE).expect("SPILE_VECTORS=overwrite writes the file");
    serde_json::from_str(&text).expect("JSON")
}

/// Keys that are plain, escaped, not ASCII, just short enough, and too long.
async fn keys() -> Vec<Value> {
    let server = RedisServer::start();
    let (short, long) = ("x".repeat(200), "x".repeat(201));
    let escaped = format!("{}:::", "x".repeat(192));
    let places = [
        ("spile", PAYER, "gold"),
        ("shop/v1", "10.0.0.1", "free"),
        ("spile", "{eve}:100%", "gold"),
        ("spile", "a b/c?*", "gold"),
        ("spile", "zoë", "gold"),
        ("spile", "2001:db8::/64", "per-ip"),
        ("spile", &short, "gold"),
        ("spile", &long, "gold"),
        ("spile", &escaped, "gold"),
    ];
    let mut vectors = Vec::new();
    for (prefix, key, plan) in places {
        server.command(&["FLUSHALL"]);
        let store =
            RedisStore::builder(server.url()).prefix(prefix).timeout(PATIENT).build().expect("a sound URL");
        store.spend(&charge(key, plan, "1, 1/h", 1).into()).await.expect("an answer");
        let hash = server.command(&["KEYS", "*"]).list()[0].text().to_owned();
        vectors.push(json!({ "prefix": prefix, "key": key, "plan": plan, "hash": hash }));
    }
    vectors
}

fn limit_vector(text: &str) -> Value {
    let limit = limit(text);
    let rate = limit.rate().expect("a rate");
    let fill_s = limit.fill_time().as_micros().div_ceil(1_000_000).max(1);
    let [capacity, refill, quantum] = [limit.capacity(), rate.refill(), limit.quantum()].map(Amount::micro);
    json!({
        "limit": text, "capacity": capacity, "refill": refill, "period": rate.period().as_micros() as u64,
        "quantum": quantum, "ttl_ms": 2_000 * fill_s as u64,
    })
}

/// A limit from its text, which may end with a currency.
fn limit(text: &str) -> Limit {
    let Some(text) = text.strip_suffix(" usd") else { return text.parse().expect("a sound limit") };
    let (capacity, refill) = text.split_once(", ").expect("a capacity and a refill");
    let rate: RateBuilder = refill.parse().expect("a sound rate");
    let capacity: Amount = capacity.parse().expect("a sound amount");
    rate.burst(capacity).unit("usd".parse().expect("a currency")).build().expect("within bounds")
}

fn charge<'k>(key: &'k str, name: &str, text: &str, cost_micro: i64) -> Charge<'k> {
    let limit = NamedLimit::new(LimitName::new(name).expect("a sound name"), limit(text));
    let cost = Cost::new(Amount::from_micro(cost_micro)).expect("a sound cost");
    Charge::late(Key::new(key).expect("a sound key"), limit, cost)
}

fn sequence(sequence: &Sequence) -> Value {
    let clock = FakeClock::at(Micros::new(START_US));
    let model = ModelStore::new(clock.clone());
    let asked = |asks: &[Ask]| -> Charges<'static> {
        let charges = asks.iter().map(|(name, limit, cost)| charge(PAYER, name, limit, *cost));
        Charges::new(charges).expect("a short chain")
    };
    let chains = || sequence.calls.iter().map(|(_, asks)| asked(asks));
    if let Some(debt) = sequence.debt {
        model.run(Operation::Charge, &asked(&[debt]));
    }
    let before = stored(&model, chains());
    let calls = sequence.calls.iter().zip(chains()).map(|((after_us, _), charges)| {
        let now = Micros::new(START_US + after_us);
        clock.set(now);
        let outcome = model.run(Operation::Spend, &charges).into_outcome();
        let PortableCall { keys, arguments } = PortableCall::new(&charges, now);
        json!({
            "keys": keys, "arguments": arguments, "reply": portable_reply(&charges, &outcome),
            "stored": stored(&model, chains()),
        })
    });
    json!({ "name": sequence.name, "before": before, "calls": calls.collect::<Vec<_>>() })
}

/// The fields of each hash, as texts.
fn stored(model: &ModelStore<FakeClock>, chains: impl Iterator<Item = Charges<'static>>) -> Value {
    let mut hashes = json!({});
    for charge in chains.flatten() {
        let Some(bucket) = model.bucket(&charge) else { continue };
        let (hash, name) = place(&charge);
        let prefix = if name.is_empty() { String::new() } else { format!("{name}:") };
        hashes[&hash]["v"] = json!("1");
        hashes[&hash][format!("{prefix}t")] = json!(bucket.amount().micro().to_string());
        hashes[&hash][format!("{prefix}ts")] = json!(bucket.moment().get().to_string());
    }
    hashes
}

/// The file, with one vector per line.
fn text(parts: &[(&str, Vec<Value>)]) -> String {
    let lines = |values: &[Value]| values.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n    ");
    let parts =
        parts.iter().map(|(part, values)| format!("  {}: [\n    {}\n  ]", json!(part), lines(values)));
    format!("{{\n{}\n}}\n", parts.collect::<Vec<_>>().join(",\n"))
}
