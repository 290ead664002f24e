//! How long the model takes for a spend, which decides how many steps a simulation has.

use std::time::{Duration, Instant};

use spile_core::{Charge, Charges, Cost, Key, Limit, LimitName, Micros, NamedLimit, Operation};
use spile_redis::WireCall;
use spile_resp::Value;
use spile_sim::redis::Server;

const SPENDS: u32 = 20_000;
/// Ample for a debug build on a busy machine. A release build takes a few microseconds.
const AT_MOST: Duration = Duration::from_millis(1);

#[test]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn a_spend_takes_microseconds() {
    let limit = NamedLimit::new(LimitName::new("gold").unwrap(), "100, 100/s".parse::<Limit>().unwrap());
    let keys: Vec<String> = (0..1000).map(|number| format!("user:{number}")).collect();
    let calls: Vec<_> = keys
        .iter()
        .map(|key| {
            let charge = Charge::new(Key::new(key).unwrap(), limit.clone(), Cost::ONE).unwrap();
            let chain = Charges::from(charge);
            WireCall::new("spile", &[(Operation::Spend, &chain)], Micros::from_secs(1))
        })
        .map(|call| call.arguments(None))
        .collect();
    let mut server = Server::new();
    let script = {
        let chain = Charges::from(Charge::new(Key::new("a").unwrap(), limit, Cost::ONE).unwrap());
        WireCall::new("spile", &[(Operation::Spend, &chain)], Micros::from_secs(1)).script()
    };
    let Value::Text(sha) = server.execute(1, &[b"SCRIPT", b"LOAD", script.as_bytes()]) else {
        panic!("the script loads");
    };
    let started = Instant::now();
    for number in 0..SPENDS {
        let (keys, argument) = &calls[number as usize % calls.len()];
        let now_us = 1_800_000_000_000_000 + u64::from(number) * 50;
        let reply = server.execute(now_us, &[b"EVALSHA", &sha, b"1", &keys[0], argument]);
        assert!(matches!(reply, Value::Array(_)), "{reply:?}");
    }
    let each = started.elapsed() / SPENDS;
    println!("{:.2} microseconds per spend", each.as_secs_f64() * 1e6);
    assert!(each < AT_MOST, "{each:?}");
}
