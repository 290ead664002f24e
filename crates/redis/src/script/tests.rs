//! `LAYOUT.md` says what the code does.

use std::collections::BTreeMap;
use std::sync::Arc;

use spile_calendar::CalendarLimit;
use spile_core::{Charge, Cost, Key, Limit, LimitName, Micros, NamedLimit, PermitId};
use spile_resp::Value;
use tokio::sync::oneshot;

use super::call::ScriptCall;
use super::key::KeyPrefix;
use super::request::{BatchGroup, PendingRequest, Request, RequestDetails, ScriptOp, WireCharge};
use super::{EVERYTHING, PORTABLE_SCRIPT, RATES};

const LAYOUT: &str = include_str!("LAYOUT.md");
const HEAD: &str = include_str!("lua/head.lua");
const VECTORS: &str = include_str!("portable-vectors.json");

const OPERATIONS: [ScriptOp; 13] = [
    ScriptOp::Spend,
    ScriptOp::Peek,
    ScriptOp::SpendUpTo,
    ScriptOp::Charge,
    ScriptOp::Refund,
    ScriptOp::Reset,
    ScriptOp::RefundOnce,
    ScriptOp::Reserve,
    ScriptOp::Settle,
    ScriptOp::Acquire,
    ScriptOp::Retake,
    ScriptOp::Renew,
    ScriptOp::Release,
];

fn name(operation: ScriptOp) -> String {
    format!("{operation:?}").replace("UpTo", "_UP_TO").replace("Once", "_ONCE").to_uppercase()
}

/// The cells of each row of the first table below a heading, without code marks.
fn table(heading: &str) -> Vec<Vec<String>> {
    tables(heading).swap_remove(0)
}

/// The text between a heading and the next one.
fn section(heading: &str) -> &str {
    let (_, section) = LAYOUT.split_once(&format!("\n{heading}\n")).expect("a heading");
    section.split("\n#").next().unwrap_or_default().trim_start()
}

/// The tables between a heading and the next one.
fn tables(heading: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables = Vec::new();
    for block in section(heading).split("\n\n").filter(|block| block.starts_with('|')) {
        let rows = block.lines().skip(2).map(|row| {
            let cells = row.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        });
        tables.push(rows.collect());
    }
    tables
}

/// A cell that is code.
fn code(cell: &str) -> &str {
    cell.trim_matches('`')
}

/// The numbers of a table by their names.
fn numbered(table: &[Vec<String>]) -> BTreeMap<String, f64> {
    table.iter().map(|row| (code(&row[1]).to_owned(), row[0].parse().expect("a number"))).collect()
}

/// The numbers that a script gives names to: `local A, B = 1, 2`.
fn constants(script: &str) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for line in script.lines().filter_map(|line| line.strip_prefix("local ")) {
        let Some((names, values)) = line.split_once(" = ") else { continue };
        for (name, value) in names.split(", ").zip(values.split(", ")) {
            if let Ok(value) = value.parse()
                && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
            {
                found.insert(name.to_owned(), value);
            }
        }
    }
    found
}

#[test]
fn every_number_with_a_name_is_in_the_tables_and_in_the_script() {
    let mut documented = numbered(&table("### Operations"));
    assert_eq!(documented.len(), OPERATIONS.len());
    for operation in OPERATIONS {
        let name = name(operation);
        assert_eq!(documented.get(&name), Some(&f64::from(operation as u32)), "{name}");
    }
    documented.extend(numbered(&tables("### Operations")[1]));
    documented.extend(numbered(&table("### Reply")));
    let bounds = table("## Arithmetic");
    documented.extend(bounds.iter().map(|row| (code(&row[0]).to_owned(), row[1].parse().expect("a number"))));
    assert_eq!(constants(HEAD), documented);
    // The portable script repeats some of them, and has the bounds of limits.
    documented.insert("MAX_AMOUNT".to_owned(), Limit::MAX_AMOUNT.micro() as f64);
    documented.insert("MAX_RATE".to_owned(), Limit::MAX_RATE);
    documented.insert("MAX_FILL_S".to_owned(), Limit::MAX_FILL.as_secs_f64());
    let portable = constants(PORTABLE_SCRIPT);
    assert_eq!(portable.len(), 7);
    for (name, value) in portable {
        assert_eq!(documented.get(&name), Some(&value), "{name}");
    }
}

#[test]
fn the_scripts_are_the_fragments_in_the_order_of_the_table() {
    let scripts = BTreeMap::from([("RATES", RATES.source()), ("EVERYTHING", EVERYTHING.source())]);
    let rows = table("## The scripts of the store");
    assert_eq!(rows.len(), scripts.len());
    for row in rows {
        let fragment = |name: &str| {
            let path = format!("{}/src/script/lua/{}.lua", env!("CARGO_MANIFEST_DIR"), code(name));
            std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"))
        };
        let assembled: String = row[1].split(' ').map(fragment).collect();
        assert!(assembled == scripts[code(&row[0])], "{}", row[0]);
    }
}

/// A request for key `user:123` at 3 tokens each.
fn request(operation: ScriptOp, limits: &[(&str, Limit)]) -> Request {
    let prefix = KeyPrefix::new("spile").expect("a prefix");
    let charges = limits.iter().map(|(name, limit)| {
        let limit = NamedLimit::new(LimitName::new(name).expect("a name"), *limit);
        let key = Key::new("user:123").expect("a key");
        WireCharge::new(&prefix, &Charge::new(key, limit, Cost::new(3).expect("a cost")).expect("a charge"))
    });
    Request::new(operation, charges.collect())
}

fn call(request: Request) -> ScriptCall {
    let (request, (answer, _)) = (Arc::new(request), oneshot::channel());
    ScriptCall::new(7, vec![PendingRequest { request, group: BatchGroup::Any, answer, deadline: None }])
}

#[test]
fn verdicts_are_read_by_the_numbers_of_the_table() {
    let rate = Limit::per_second(9).build().expect("a limit");
    let call = call(request(ScriptOp::Spend, &[("free", rate)]));
    let read = |verdict: i64| {
        let numbers = [7, 1_000, 0, 0, verdict, 0, 0];
        call.read(&Value::Array(numbers.map(Value::Int).to_vec()))
    };
    let rows = table("### Reply");
    assert!(read(i64::from(rows.len() as u32)).is_err(), "there is no other verdict");
    for (name, number) in numbered(&rows) {
        let Ok(Ok(answers)) = read(number as i64) else { panic!("{name}: {number}") };
        let read = format!("{:?}", answers.replies[0]).to_uppercase();
        // In Rust, two of them are errors.
        let name = name.replace("OUTSIDE_WINDOWS", "OUTSIDEWINDOWS").replace("NEWER_FORMAT", "BADTYPES");
        assert!(read.contains(&name), "{number} is {name}: {read}");
    }
}

#[test]
fn an_amount_follows_the_verdicts_of_the_operations_that_the_page_names() {
    for operation in OPERATIONS {
        let is_named = section("### Reply").contains(&format!("`{}`", name(operation)));
        assert_eq!(is_named, operation.has_amount(), "{operation:?}");
    }
}

#[test]
fn the_calls_of_the_page_are_encoded_as_it_shows() {
    let limit = |text: &str| text.parse::<Limit>().expect("a limit");
    let gold = [("gold/burst", limit("10, 1/s")), ("gold/daily", limit("100, 100/day"))];
    let daily = Limit::quota(100).per_day().build().expect("a limit");
    let jobs = Limit::concurrent(5).build().expect("a limit");
    let permit = PermitId::new(Micros::from_secs(1_767_225_600), std::time::Duration::ZERO, 7, "worker-3")
        .expect("an id");
    let acquire = request(ScriptOp::Acquire, &[("free", limit("10, 1/s")), ("trial", daily), ("jobs", jobs)]);
    let acquire = acquire
        .at_time(Micros::from_secs(1_767_225_600))
        .with(RequestDetails { permit: Some(permit), ..RequestDetails::default() });
    let shown: Vec<String> = LAYOUT.split("```json\n").skip(1).map(block).collect();
    assert_eq!(shown, [request(ScriptOp::Spend, &gold), acquire].map(arguments));
}

/// A block of code from its first line on, without white space.
fn block(text: &str) -> String {
    let (block, _) = text.split_once("```").expect("the block ends");
    block.split_whitespace().collect()
}

/// The last argument of the call of a request, as JSON would write it.
fn arguments(request: Request) -> String {
    let mut command = Vec::new();
    call(request).write(0, &mut command);
    let (command, _) = spile_resp::parse(&command).expect("a command").expect("a whole one");
    let Some(Value::Text(bytes)) = command.as_array().and_then(<[Value]>::last) else {
        panic!("{command:?}")
    };
    let mut rest = bytes.as_slice();
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at_checked(count)?;
        rest = left;
        Some(taken)
    };
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    let mut values = Vec::new();
    while let Some(&[kind]) = take(1) {
        let width = match kind {
            0..=0x7f => 0,
            0xd9 => 1,
            0xcd => 2,
            0xce => 4,
            _ => 8,
        };
        let value = number(take(width).expect("a number"));
        match kind {
            0..=0x7f => values.push(kind.to_string()),
            0xd9 => {
                let text = take(value as usize).expect("a text");
                values.push(format!("{:?}", String::from_utf8_lossy(text)));
            }
            0xcb => values.push(format!("{:?}", f64::from_bits(value))),
            _ => values.push(value.to_string()),
        }
    }
    format!("[{}]", values.join(","))
}

#[test]
fn the_portable_script_takes_the_arguments_and_returns_the_errors_of_the_tables() {
    let rows = table("### Keys and arguments");
    let names: Vec<_> = rows.iter().map(|row| code(&row[0])).collect();
    let line = format!("local n, {} = ", names.join(", "));
    assert!(PORTABLE_SCRIPT.contains(&line), "{line}");
    let errors = tables("### The reply").pop().expect("a table");
    let refusals: Vec<_> = PORTABLE_SCRIPT.split("error_reply('").skip(1).collect();
    assert_eq!(errors.len(), refusals.len());
    for row in errors {
        let error = format!("{} limit ", code(&row[0]));
        assert!(refusals.iter().any(|refusal| refusal.starts_with(&error)), "{error}");
    }
}

#[test]
fn the_examples_of_the_portable_script_are_among_the_vectors() {
    let vectors: serde_json::Value = serde_json::from_str(VECTORS).expect("JSON");
    let keys = vectors["keys"].as_array().expect("a list");
    let examples = &tables("## Keys")[1];
    assert!(!examples.is_empty());
    for row in examples {
        let [prefix, key, plan, hash] = [0, 1, 2, 3].map(|cell| code(&row[cell]));
        let vector = serde_json::json!({ "prefix": prefix, "key": key, "plan": plan, "hash": hash });
        assert!(keys.contains(&vector), "{vector}");
    }
    let (_, example) = LAYOUT.split_once("```text\nEVAL").expect("an example");
    let (example, _) = example.split_once("```").expect("the block ends");
    let example: Vec<_> = example.split_whitespace().collect();
    let calls = vectors["sequences"][1]["calls"].as_array().expect("a list").iter().take(2);
    let words = |value: &serde_json::Value| {
        let values = value.as_array().expect("a list").iter();
        values
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let shown = calls.map(|call| {
        format!(
            "EVAL portable.lua 1 {} {} -> {}",
            words(&call["keys"]),
            words(&call["arguments"]),
            words(&call["reply"])
        )
    });
    assert_eq!(format!("EVAL {}", example.join(" ")), shown.collect::<Vec<_>>().join(" "));
}
