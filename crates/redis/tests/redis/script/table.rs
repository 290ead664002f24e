//! Redis answers every cell of the table of combinations as the oracle does, and keeps every bucket for as long as it may matter.

use spile_core::FakeClock;
use spile_redis::{RedisStore, TimeSource};
use spile_testkit::redis::{Flavour, RedisServer};
use spile_testkit::table::axes::{OperationKind, StateKind};
use spile_testkit::table::oracle::{PlainCharge, PlainQuestion, PlainReply};
use spile_testkit::table::{TableSubject, TableSummary, try_every_cell_on};

use super::lifetimes::Lifetimes;
use crate::common::{patient, place};

/// The number of cells. A change shows that combinations were added or removed.
const CELLS: TableSummary = TableSummary { tried: 7_104, refused: 14_496 };

#[tokio::test]
async fn redis_7_answers_every_cell_as_the_oracle_does() {
    assert_eq!(try_every_cell_on(&mut OnRedis::new(Flavour::Redis7)).await, CELLS);
}

#[tokio::test]
async fn redis_6_2_answers_every_cell_as_the_oracle_does() {
    assert_eq!(try_every_cell_on(&mut OnRedis::new(Flavour::Redis62)).await, CELLS);
}

#[tokio::test]
async fn valkey_9_answers_every_cell_as_the_oracle_does() {
    assert_eq!(try_every_cell_on(&mut OnRedis::new(Flavour::Valkey9)).await, CELLS);
}

/// A store on a separate server.
struct OnRedis {
    _server: RedisServer,
    store: RedisStore,
    clock: FakeClock,
    lifetimes: Lifetimes,
}

impl OnRedis {
    fn new(flavour: Flavour) -> Self {
        let server = RedisServer::builder().flavour(flavour).start();
        let clock = FakeClock::default();
        let time = TimeSource::client(clock.clone());
        let store = patient(&server.url()).prefix("spile").time(time).build().expect("a sound URL");
        let lifetimes = Lifetimes::new(&server, clock.clone());
        Self { _server: server, store, clock, lifetimes }
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
    }

    fn clock_moved(&mut self) {
        self.lifetimes.follow_clock();
    }

    /// Keys have gone when their time was up.
    async fn forget(&mut self) {}

    fn damage(&mut self, charge: &PlainCharge, state: StateKind) {
        let [key, amount, time] = place(charge.key, charge.name, charge.limit.shape.kind());
        let command: &[&str] = match state {
            StateKind::Corrupt => &["HSET", &key, "v", "1", &amount, "0.5", &time, "1"],
            _ => &["SET", &key, "x"],
        };
        self.lifetimes.command(command);
    }

    fn check(&mut self, question: &PlainQuestion, reply: &PlainReply) -> Result<(), String> {
        if question.operation == OperationKind::Peek {
            // Writes nothing, as the tests of expiry show.
            return Ok(());
        }
        for (charge, bucket) in question.charges.iter().zip(&reply.buckets) {
            let place = place(charge.key, charge.name, charge.limit.shape.kind());
            self.lifetimes.note(place, question.operation, reply.verdict, bucket.reset_after);
        }
        self.lifetimes.check()
    }
}
