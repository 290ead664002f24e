//! Redis answers every cell of the table of combinations as the oracle does, and keeps every bucket for as long as it may matter.

use std::collections::BTreeMap;

use spile_core::{Clock, FakeClock, Verdict};
use spile_redis::{RedisStore, TimeSource};
use spile_testkit::redis::{Flavour, RedisServer};
use spile_testkit::table::axes::{OperationKind, ShapeKind, StateKind};
use spile_testkit::table::oracle::{PlainCharge, PlainQuestion, PlainReply};
use spile_testkit::table::{TableSubject, TableSummary, try_every_cell_on};

use super::lifetimes::Lifetimes;
use crate::common::{patient, permits_key, place};

/// The number of cells. A change shows that combinations were added or removed.
const CELLS: TableSummary = TableSummary { tried: 5_548, refused: 13_172 };

#[tokio::test]
async fn redis_7_answers_every_cell_as_the_oracle_does() {
    assert_eq!(try_every_cell_on(OnRedis::new(Flavour::Redis7)).await, CELLS);
}

#[tokio::test]
async fn redis_6_2_answers_every_cell_as_the_oracle_does() {
    assert_eq!(try_every_cell_on(OnRedis::new(Flavour::Redis62)).await, CELLS);
}

#[tokio::test]
async fn valkey_9_answers_every_cell_as_the_oracle_does() {
    assert_eq!(try_every_cell_on(OnRedis::new(Flavour::Valkey9)).await, CELLS);
}

/// A store on a server of its own.
struct OnRedis {
    _server: RedisServer,
    store: RedisStore,
    clock: FakeClock,
    lifetimes: Lifetimes,
    /// Until when each bucket has to be kept: its key and what its fields begin with.
    needed: BTreeMap<(String, String), i128>,
}

impl OnRedis {
    fn new(flavour: Flavour) -> Self {
        let server = RedisServer::builder().flavour(flavour).start();
        let clock = FakeClock::default();
        let time = TimeSource::client(clock.clone());
        let store = patient(&server.url()).prefix("spile").time(time).build().expect("a sound URL");
        let lifetimes = Lifetimes::new(&server, clock.clone());
        Self { _server: server, store, clock, lifetimes, needed: BTreeMap::new() }
    }

    fn now(&self) -> i128 {
        self.clock.now().get().into()
    }

    /// The key of a bucket, and what its fields begin with.
    fn place(charge: &PlainCharge) -> (String, String) {
        let shape = charge.limit.shape.kind();
        if shape == ShapeKind::Concurrency {
            return (permits_key(charge.key, charge.name), String::new());
        }
        let (hash, fields) = place(charge.key, charge.name);
        (hash, format!("{fields}{}", if shape == ShapeKind::Rate { "t" } else { "u" }))
    }

    /// Notes until when the buckets of a question have to be kept: until its limits would have filled them.
    fn note(&mut self, question: &PlainQuestion, reply: &PlainReply) {
        let now = self.now();
        for (charge, bucket) in question.charges.iter().zip(&reply.buckets) {
            match (charge.limit.shape.kind(), question.operation, reply.verdict) {
                (ShapeKind::Concurrency, ..)
                | (_, OperationKind::Peek | OperationKind::Renew, _)
                | (_, OperationKind::Release, Verdict::Denied)
                | (_, _, Verdict::Before) => {}
                (_, OperationKind::Reset, _) => drop(self.needed.remove(&Self::place(charge))),
                _ => {
                    let until = self.needed.entry(Self::place(charge)).or_default();
                    *until = (*until).max(now + bucket.reset_after);
                }
            }
        }
    }

    /// When the last permit of a set ends. `None` without a permit, or if the key is damaged and lives for ever.
    fn last_end(&mut self, charge: &PlainCharge) -> Option<i128> {
        let (key, _) = Self::place(charge);
        self.lifetimes.end_of(&key)?;
        let last = self.lifetimes.command(&["ZRANGE", &key, "-1", "-1", "WITHSCORES"]);
        last.list().get(1).map(|end| end.int().into())
    }
}

impl TableSubject for OnRedis {
    type Store = RedisStore;

    const CAN_DAMAGE: bool = true;

    fn store(&self) -> &RedisStore {
        &self.store
    }

    fn clock(&self) -> &FakeClock {
        &self.clock
    }

    fn clear(&mut self) {
        self.lifetimes.clear();
        self.needed.clear();
    }

    fn clock_moved(&mut self) {
        self.lifetimes.follow_clock();
        let now = self.now();
        self.needed.retain(|_, until| *until > now);
    }

    /// Keys have gone when their time was up.
    async fn forget(&mut self) {}

    fn damage(&mut self, charge: &PlainCharge, state: StateKind) {
        let (key, amount) = Self::place(charge);
        if state == StateKind::Broken {
            self.lifetimes.command(&["SET", &key, "x"]);
        } else {
            let time = if amount.ends_with('u') { format!("{amount}e") } else { format!("{amount}s") };
            self.lifetimes.command(&["HSET", &key, "v", "1", &amount, "0.5", &time, "1"]);
        }
    }

    fn check(&mut self, question: &PlainQuestion, reply: &PlainReply) -> Result<(), String> {
        if question.operation == OperationKind::Peek {
            // Writes nothing, as the tests of expiry show.
            return Ok(());
        }
        self.lifetimes.read();
        self.note(question, reply);
        let mut needed = self.needed.clone();
        for charge in
            question.charges.iter().filter(|charge| charge.limit.shape.kind() == ShapeKind::Concurrency)
        {
            needed.extend(self.last_end(charge).map(|end| (Self::place(charge), end)));
        }
        let now = self.now();
        for ((key, field), until) in needed.iter().filter(|(_, until)| **until > now) {
            let ends = self.lifetimes.end_of(key);
            if ends.is_none_or(|ends| ends < *until) {
                let ends = ends.map(|ends| ends - now);
                return Err(format!("{key} {field} is needed for {} us and kept for {ends:?}", until - now));
            }
        }
        Ok(())
    }
}
