//! Permits as Redis keeps them: sets that go in time, and that are repaired if they are something else.

use std::time::Duration;

use spile_core::{
    Charges, Cost, FakeClock, Inspect, Key, Limit, LimitName, Micros, NamedLimit, PermitId, PermitStep,
    SpendTime, StoreExt,
};
use spile_redis::RedisStore;
use spile_testkit::redis::{Flavour, RedisServer};

use crate::common::{charges, patient, store_on};

const SET: &str = "spile:{ann}:permits:limit";

fn store(server: &RedisServer) -> RedisStore {
    patient(&server.url()).prefix("spile").build().expect("a sound URL")
}

pub(crate) fn jobs(permits: u64, hold_s: u64) -> Charges<'static> {
    let limit = Limit::concurrent(permits).hold(Duration::from_secs(hold_s)).build().unwrap();
    let limit = NamedLimit::new(LimitName::new("limit").unwrap(), limit);
    Charges::one(Key::new("ann").unwrap(), &limit, Cost::ONE).unwrap()
}

fn id(number: u128) -> PermitId {
    PermitId::new(Micros::from_secs(1_700_000_000), Duration::ZERO, number, "worker-7").unwrap()
}

async fn takes(store: &RedisStore, charges: &Charges<'_>, number: u128) -> bool {
    store.permit(charges, &id(number), PermitStep::Acquire).await.unwrap().allowed
}

#[tokio::test]
async fn an_operator_reads_who_holds_what_in_redis_itself() {
    let server = RedisServer::start();
    let store = store(&server);
    assert!(takes(&store, &jobs(2, 30), 7).await);
    let held = server.command(&["ZRANGE", SET, "0", "-1", "WITHSCORES"]);
    assert_eq!(held.list()[0].text(), id(7).as_str());
    let time = server.command(&["TIME"]).list()[0].int();
    let ends = held.list()[1].text().parse::<i64>().expect("plain digits") / 1_000_000;
    assert!((time + 28..=time + 30).contains(&ends), "{ends} at {time}");
    assert!(
        store.permit(&jobs(2, 30), &id(7), PermitStep::Release(SpendTime::Unknown)).await.unwrap().allowed
    );
    assert_eq!(server.command(&["EXISTS", SET]).int(), 0, "nothing is left");
}

#[tokio::test]
async fn what_is_no_set_of_permits_is_repaired_when_a_place_is_asked_for_and_not_before() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).start();
        let store = store(&server);
        for (done, breakage) in
            [["LPUSH", SET, "x"], ["SET", SET, "x"], ["SADD", SET, "x"]].iter().enumerate()
        {
            server.command(&["DEL", SET]);
            server.command(breakage);
            assert!(store.peek(&jobs(1, 30)).await.unwrap().allowed, "{flavour:?} {breakage:?}");
            for step in [PermitStep::Renew, PermitStep::Release(SpendTime::Unknown)] {
                assert!(!store.permit(&jobs(1, 30), &id(1), step).await.unwrap().allowed);
            }
            assert_eq!(store.stats().repairs, done as u64, "looking changes nothing");
            assert!(takes(&store, &jobs(1, 30), done as u128).await, "{flavour:?} {breakage:?}");
            assert_eq!(store.stats().repairs, done as u64 + 1);
            assert!(!takes(&store, &jobs(1, 30), 99).await);
        }
    }
}

/// While instances run with both, or streams from before the change are open.
#[tokio::test]
async fn a_limit_may_change_its_kind_and_neither_loses_what_it_counted() {
    let server = RedisServer::start();
    let store = store(&server);
    assert!(store.spend(&charges("ann", "10, 1/h", 9)).await.unwrap().allowed);
    assert!(takes(&store, &jobs(1, 30), 1).await);
    assert!(!takes(&store, &jobs(1, 30), 2).await);
    assert!(store.spend(&charges("ann", "10, 1/h", 1)).await.unwrap().allowed);
    for step in [PermitStep::Renew, PermitStep::Retake] {
        assert!(store.permit(&jobs(1, 30), &id(1), step).await.unwrap().allowed, "{step:?}");
        assert!(!store.spend(&charges("ann", "10, 1/h", 1)).await.unwrap().allowed, "after {step:?}");
    }
    assert!(!takes(&store, &jobs(1, 30), 2).await);
    assert_eq!(store.stats().repairs, 0);
}

#[tokio::test]
async fn a_set_lives_for_as_long_as_its_last_permit_and_is_never_cut_short() {
    let server = RedisServer::start();
    let store = store(&server);
    let ttl_ms = || server.command(&["PTTL", SET]).int();
    assert!(takes(&store, &jobs(3, 600), 1).await);
    assert!((600_000..=1_200_002).contains(&ttl_ms()));
    assert!(takes(&store, &jobs(3, 1), 2).await, "under a shorter hold time");
    assert!(store.permit(&jobs(3, 1), &id(2), PermitStep::Renew).await.unwrap().allowed);
    assert!(ttl_ms() >= 600_000);
    assert!(takes(&store, &jobs(3, 3_600), 3).await);
    assert!(ttl_ms() >= 3_600_000);
}

#[tokio::test]
async fn permits_that_ended_by_themselves_are_counted_and_go() {
    let (server, clock) = (RedisServer::start(), FakeClock::default());
    let store = store_on(&server.url(), clock.clone());
    for number in 0..3 {
        assert!(takes(&store, &jobs(3, 30), number).await);
    }
    assert!(
        store.permit(&jobs(3, 30), &id(0), PermitStep::Release(SpendTime::Unknown)).await.unwrap().allowed
    );
    clock.advance(Duration::from_secs(30));
    assert!(takes(&store, &jobs(3, 30), 9).await);
    assert_eq!(store.stats().expired_permits, 2);
    assert_eq!(store.holders(&jobs(3, 30)).await.unwrap()[0].len(), 1);
    let keys = server.command(&["KEYS", "*"]);
    assert_eq!(server.command(&["ZCARD", keys.list()[0].text()]).int(), 1);
}
