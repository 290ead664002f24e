//! Calls that are encoded without a connection are decided as the store's are.

use std::time::Duration;

use spile_calendar::CalendarLimit;
use spile_core::{
    Charge, Charges, Cost, FakeClock, Key, Limit, LimitName, Micros, NamedLimit, Operation, ReservationId,
    StoreExt,
};
use spile_redis::{WireAnswer, WireCall};
use spile_testkit::redis::{RedisClient, RedisServer};
use spile_testkit::store::ModelStore;

use crate::common::charge;

fn run(client: &mut RedisClient, call: &WireCall, now: Micros) -> Vec<WireAnswer> {
    let (keys, argument) = call.arguments(Some(now));
    let count = keys.len().to_string();
    let mut words = vec![b"EVAL", call.script().as_bytes(), count.as_bytes()];
    words.extend(keys.iter().map(Vec::as_slice));
    words.push(&argument);
    let reply = client.send(&words).expect("an answer");
    call.read(&reply).expect("a reply to this call")
}

#[tokio::test]
async fn questions_of_one_call_are_answered_as_by_a_store() {
    let server = RedisServer::start();
    let mut client = server.connect().expect("the server answers");
    let now = Micros::from_secs(1_800_000_000);
    let model = ModelStore::new(FakeClock::at(now));
    let quota = Limit::quota(100).per_day().build().expect("a limit");
    let quota = NamedLimit::new(LimitName::new("gold/day").expect("a name"), quota);
    let quota = Charge::new(Key::new("ann").expect("a key"), quota, Cost::ONE).expect("a charge");
    let chain = Charges::new([charge("ann", "gold/burst", "10, 1/h", 4), quota]).expect("a chain");
    let id = ReservationId::new(7, Duration::from_secs(60)).expect("a minute");
    let costs = [Cost::ZERO, Cost::ONE];
    let operations = [
        Operation::Spend,
        Operation::Reserve(id),
        Operation::Settle(id, &costs),
        Operation::Settle(id, &costs),
        Operation::Spend,
        Operation::Spend,
    ];
    let call = WireCall::new("spile", &operations.map(|operation| (operation, &chain)), now);
    for (answer, operation) in run(&mut client, &call, now).into_iter().zip(operations) {
        let expected = model.ask(operation, &chain).await.expect("an answer");
        assert!(matches!(answer, WireAnswer::Reply(reply) if reply == expected), "{operation:?}");
    }
    // The script sees another day than its caller.
    let late = now + Duration::from_secs(5 * 86_400);
    let answers = run(&mut client, &WireCall::new("spile", &[(Operation::Spend, &chain)], now), late);
    assert!(matches!(answers[..], [WireAnswer::OutsideWindows(at)] if at == late), "{answers:?}");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let rate = Charges::from(charge("bob", "gold", "10, 1/h", 4));
    let answers = run(&mut client, &WireCall::new("spile", &[(Operation::Spend, &rate)], now), now);
    assert!(matches!(&answers[..], [WireAnswer::Failed(why)] if !why.may_have_run()), "{answers:?}");
}
