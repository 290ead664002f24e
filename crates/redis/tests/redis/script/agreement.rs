//! The scripts, the embedded store and the model agree bit for bit, on outcomes and on what is stored. Keys expire by the test's clock,
//! none before its buckets would be full under the limits that asked.
//!
//! A trace is drawn from a seed, which every failure prints; `SPILE_SEED` replays it.

use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use spile_calendar::{CalendarLimit, Period};
use spile_core::{
    Amount, Bucket, Charge, Charges, Clock, Cost, FakeClock, Key, Limit, LimitName, Micros, NamedLimit,
    Operation, PermitId, PermitStep, QuotaWindows, RefundId, Reply, ReservationId, SpendTime, Store,
    StoreExt, Unit, Verdict,
};
use spile_memory::MemoryStore;
use spile_redis::RedisStore;
use spile_testkit::redis::{Flavour, RedisClient, RedisReply, RedisServer};
use spile_testkit::store::ModelStore;
use spile_testkit::table::axes::{OperationKind, ShapeKind};

use super::lifetimes::Lifetimes;
use super::portable::{PortableCall, portable_reply};
use crate::common::{self, BucketPlace, place};

const KEYS: [&str; 6] = ["ann", "bob", "{eve}:x", "user:123", "hot", "hot"];
const IDS: [&str; 2] = ["order-7", "order 8 {}:%"];
/// How many seconds reservations are open.
const TTLS: [u64; 2] = [600, 86_400];
/// How many ids of reservations there are.
const RESERVATIONS: u128 = 6;
const NAMES: [&str; 7] = ["free", "gold", "gold/burst", "gold/daily", "month", "gold/jobs", "jobs"];
/// The names whose limits are mostly of this shape; one in eight is of another.
const PERMITS: [&str; 2] = ["gold/jobs", "jobs"];
const QUOTAS: [&str; 2] = ["gold/daily", "month"];
/// Costs that are no whole number of tokens.
const PARTS: [i64; 3] = [1, 499_999, 2_000_001];

/// Operations that are asked at once, so that they share a call and in it their buckets.
const MOST_AT_ONCE: usize = 24;

/// After so many operations the keys are new ones, and what is stored is compared.
const PER_ROUND: usize = 1_000;

/// Time goes on to the end of a key with less time to live, lest the key expire in real time before the test's clock comes there.
const ALMOST_EXPIRED: Duration = Duration::from_secs(5);

#[tokio::test]
async fn many_random_operations_agree_on_redis_7() {
    Trace::on(Flavour::Redis7).run(140_000).await;
}

#[tokio::test]
async fn random_operations_agree_on_redis_6_2() {
    Trace::on(Flavour::Redis62).run(30_000).await;
}

#[tokio::test]
async fn random_operations_agree_on_valkey_9() {
    Trace::on(Flavour::Valkey9).run(30_000).await;
}

/// One thing to do, drawn from the seed.
#[derive(Clone, Debug)]
struct Step {
    kind: Kind,
    charges: Charges<'static>,
}

#[derive(Clone, Debug)]
enum Kind {
    Spend,
    Peek,
    SpendUpTo,
    Refund(SpendTime),
    /// By one of few ids, so that most are repeated.
    RefundOnce(&'static str, SpendTime),
    /// At up to three times the cost that could pass.
    Charge,
    /// By one of few ids, so that some are reserved while they are open.
    Reserve(ReservationId),
    /// At up to twice each cost, by one of the same ids.
    Settle(ReservationId, Vec<Cost>),
    /// A new permit, or one of the latest.
    Permit(PermitId, PermitStep),
    Reset,
}

struct Trace {
    server: RedisServer,
    client: RedisClient,
    seed: u64,
    random: Rng,
    /// How many permits have been asked for.
    permits: u64,
    /// How many keys have expired.
    expired: usize,
    /// The windows of quotas in this round, between which a quota changes.
    windows: [QuotaWindows; 2],
}

/// The three stores of one round, on one clock.
struct Round {
    clock: FakeClock,
    redis: RedisStore,
    model: ModelStore<FakeClock>,
    memory: MemoryStore<FakeClock>,
    lifetimes: Lifetimes,
}

impl Trace {
    fn on(flavour: Flavour) -> Self {
        let seed = std::env::var("SPILE_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        let server = RedisServer::builder().flavour(flavour).start();
        let client = server.connect().expect("the server answers");
        let mut random = Rng::with_seed(seed);
        let windows = std::array::from_fn(|_| windows(&mut random));
        Self { server, client, seed, random, permits: 0, expired: 0, windows }
    }

    async fn run(mut self, operations: usize) {
        let mut done = 0;
        while done < operations {
            self.server.command(&["FLUSHALL"]);
            let mut round = self.round();
            let mut in_round = 0;
            while in_round < PER_ROUND {
                in_round += self.ask_at_once(&mut round).await;
            }
            self.compare_what_is_stored(&round);
            done += in_round;
        }
        assert!(self.expired > 0, "seed {}: no key expired", self.seed);
    }

    fn round(&mut self) -> Round {
        let clock = FakeClock::at(Micros::new(self.random.u64(2_000_000..4_000_000_000_000_000)));
        self.windows = std::array::from_fn(|_| windows(&mut self.random));
        // One connection keeps the order in which requests are made.
        let redis = RedisStore::builder(self.server.url())
            .connections(1)
            .timeout(common::PATIENT)
            .time(spile_redis::TimeSource::client(clock.clone()))
            .build()
            .expect("a sound URL");
        let model = ModelStore::new(clock.clone());
        // Forgetting full buckets shows when the clock then steps back or the plan changes; Redis forgets later.
        let memory = MemoryStore::builder().clock(clock.clone()).sweep(0).build();
        let lifetimes = Lifetimes::new(&self.server, clock.clone());
        Round { clock, redis, model, memory, lifetimes }
    }

    /// Asks for some steps at once, and compares each with the model's and the embedded store's.
    async fn ask_at_once(&mut self, round: &mut Round) -> usize {
        self.let_time_pass(&round.clock);
        self.expire(round).await;
        if self.random.u32(0..3) == 0 {
            self.ask_by_portable_script(round).await;
            round.lifetimes.check().unwrap_or_else(|why| panic!("seed {}: {why}", self.seed));
            return 1;
        }
        let count = if self.random.bool() { 1 } else { self.random.usize(2..=MOST_AT_ONCE) };
        let mut steps: Vec<Step> = (0..count).map(|_| self.step(round.clock.now())).collect();
        // Permits and resets share a separate call, after the others of a flight.
        steps.sort_by_key(|step| matches!(step.kind, Kind::Permit(..) | Kind::Reset));
        let redis = join_all(steps.iter().map(|step| step.take(&round.redis))).await;
        for (step, redis) in steps.iter().zip(redis) {
            let model = step.take(&round.model).await;
            assert_eq!(redis, model, "seed {}: {step:?} at {:?}", self.seed, round.clock.now());
            let memory = step.take(&round.memory).await;
            assert_eq!(memory, model, "seed {}, in memory: {step:?}", self.seed);
            step.note(&model, round);
        }
        round.lifetimes.check().unwrap_or_else(|why| panic!("seed {}: {why}", self.seed));
        count
    }

    /// Spends rates of one key by the portable script, on the buckets that the store uses.
    async fn ask_by_portable_script(&mut self, round: &mut Round) {
        let key = KEYS[self.random.usize(..KEYS.len())];
        let chain: Vec<_> = (0..self.random.usize(1..=4))
            .map(|_| {
                let name = NAMES[self.random.usize(..NAMES.len())];
                let limit = self.rate_under(name);
                self.charge_under(key, name, limit)
            })
            .collect();
        let charges = Charges::new(chain).expect("a short chain");
        let call = PortableCall::new(&charges, round.clock.now());
        let portable = call.run(&mut self.client).expect("arguments within bounds");
        let model = round.model.spend(&charges).await.expect("an answer");
        let memory = round.memory.spend(&charges).await.expect("an answer");
        assert_eq!(memory, model, "seed {}, in memory: {charges:?}", self.seed);
        assert_eq!(portable, portable_reply(&charges, &model), "seed {}: {charges:?}", self.seed);
        let reply = Reply::new(Verdict::done_if(model.allowed), model.at, model.buckets);
        note(&Operation::Spend, &charges, &reply, round);
    }

    /// Lets keys expire that lived until now, and the model and the embedded store forget what was in them.
    async fn expire(&mut self, round: &mut Round) {
        let clock = &round.clock;
        while let Some(end) = round.lifetimes.next_end().filter(|end| *end < clock.now() + ALMOST_EXPIRED) {
            // To a whole second, so that a seed replays: the time to live is read in real time.
            clock.set(Micros::new(end.get().next_multiple_of(1_000_000)));
        }
        let expired = round.lifetimes.follow_clock();
        self.expired += expired.len();
        if expired.is_empty() {
            return;
        }
        let sets =
            |key| NAMES.map(|name| bucket(key, name, Limit::concurrent(1).build().expect("within bounds")));
        for charge in KEYS.into_iter().flat_map(|key| self.buckets(key).into_iter().chain(sets(key))) {
            let [key, ..] = place_of(&charge);
            if expired.contains(&key) {
                let charges = charge.into();
                round.model.reset(&charges).await.expect("an answer");
                round.memory.reset(&charges).await.expect("an answer");
            }
        }
    }

    /// Mostly on and by little, but also not at all, by days, and back by less and by more than a second.
    fn let_time_pass(&mut self, clock: &FakeClock) {
        let up_to = |random: &mut Rng, us: u64| Duration::from_micros(random.u64(0..=us));
        match self.random.u32(0..20) {
            0..4 => {}
            4..12 => clock.advance(up_to(&mut self.random, 1_000)),
            12..16 => clock.advance(up_to(&mut self.random, 5_000_000)),
            16 => {
                let days = [1, 1, 40, 400][self.random.usize(..4)];
                clock.advance(up_to(&mut self.random, 86_400_000_000 * days));
            }
            17..19 => clock.step_back(up_to(&mut self.random, 1_000_000)),
            _ => clock.step_back(up_to(&mut self.random, 3_600_000_000)),
        }
        clock.set(clock.now().max(Micros::new(1)));
    }

    fn step(&mut self, now: Micros) -> Step {
        let kind = match self.random.u32(0..34) {
            0..12 => Kind::Spend,
            12..14 => Kind::Peek,
            14..17 => Kind::SpendUpTo,
            17 => Kind::Refund(self.spend_time(now)),
            18 => Kind::RefundOnce(IDS[self.random.usize(..IDS.len())], self.spend_time(now)),
            19..21 => Kind::Charge,
            21..23 => Kind::Reserve(self.reservation()),
            23..25 => Kind::Settle(self.reservation(), Vec::new()),
            25..33 => self.permit(now),
            _ => Kind::Reset,
        };
        let mut charges = self.charges();
        if let Kind::Settle(id, _) = kind {
            let cost = |charge: &Charge<'_>| {
                let actual = Amount::from_micro(self.random.i64(0..=2 * charge.cost().amount().micro()));
                let actual = if self.random.bool() { actual } else { actual.floored_to(Amount::TOKEN) };
                Cost::saturating(actual)
            };
            return Step { kind: Kind::Settle(id, charges.iter().map(cost).collect()), charges };
        }
        if matches!(kind, Kind::Charge) {
            let late = |charge: &Charge<'static>| {
                let cost = charge.cost().amount() * self.random.u64(0..=3);
                Charge::late(charge.key(), charge.limit().clone(), Cost::saturating(cost))
            };
            charges = Charges::distinct(charges.iter().map(late).collect::<Vec<_>>()).expect("a chain");
        }
        Step { kind, charges }
    }

    /// Unknown, in this window, or at a moment within the last two days.
    fn spend_time(&mut self, now: Micros) -> SpendTime {
        match self.random.u32(0..4) {
            0 => SpendTime::Unknown,
            1 => SpendTime::ThisWindow,
            _ => SpendTime::At(Micros::new(now.get().saturating_sub(self.random.u64(..172_800_000_000)))),
        }
    }

    fn permit(&mut self, now: Micros) -> Kind {
        let release = PermitStep::Release(self.spend_time(now));
        let step =
            [PermitStep::Acquire, PermitStep::Retake, PermitStep::Renew, release][self.random.usize(..4)];
        let number = match step {
            PermitStep::Acquire => {
                self.permits += 1;
                self.permits
            }
            _ => self.permits.saturating_sub(self.random.u64(0..6)),
        };
        let id = PermitId::new(Micros::from_secs(1), Duration::from_secs(number % 50), number.into(), "");
        let id = id.expect("no holder is sound");
        Kind::Permit(id, step)
    }

    fn reservation(&mut self) -> ReservationId {
        let ttl = TTLS[self.random.usize(..2)];
        reservation(self.random.u128(..RESERVATIONS), ttl)
    }

    fn charges(&mut self) -> Charges<'static> {
        let length = if self.random.bool() { 1 } else { self.random.usize(1..=4) };
        let mut chain: Vec<Charge<'static>> = Vec::new();
        while chain.len() < length {
            let (key, name) =
                (KEYS[self.random.usize(..KEYS.len())], NAMES[self.random.usize(..NAMES.len())]);
            let taken =
                |charge: &Charge<'_>| charge.key().as_str() == key && charge.limit().name().as_str() == name;
            if !chain.iter().any(taken) {
                chain.push(self.charge(key, name));
            }
        }
        Charges::new(chain).expect("no bucket twice")
    }

    /// Any quota with these windows.
    fn quota(&mut self, windows: QuotaWindows) -> Limit {
        let tokens = Amount::from([1, 7, 100, 1_000_000_000][self.random.usize(..4)]);
        let quota = Limit::per_window(tokens, windows).unit(self.unit());
        let quota = if self.random.bool() { quota } else { quota.debt(self.random.u64(0..200)) };
        quota.build().expect("within bounds")
    }

    /// Now and then money, which has another quantum.
    fn unit(&mut self) -> Unit {
        if self.random.u32(0..4) == 0 { "usd".parse().expect("a currency") } else { Unit::Requests }
    }

    /// Any rate that fills slowly enough not to expire in real time between two looks at it.
    fn rate(&mut self) -> Limit {
        loop {
            let tokens = |random: &mut Rng| {
                let micro = (10f64.powf(random.f64() * 9.0) * 1e6) as i64;
                let whole = Amount::from_micro(micro).floored_to(Amount::TOKEN);
                if random.u32(0..4) == 0 { Amount::from_micro(micro) } else { whole }
            };
            let (capacity, refill) = (tokens(&mut self.random), tokens(&mut self.random));
            let count = tokens(&mut self.random).whole_tokens().max(1);
            let period = Duration::from_micros(count * self.random.u64(1..100_000));
            let limit = Limit::per(refill, period).burst(capacity).unit(self.unit());
            let limit =
                if self.random.bool() { limit } else { limit.debt(tokens(&mut self.random) - Amount::TOKEN) };
            match limit.build() {
                Ok(limit) if limit.fill_time() > ALMOST_EXPIRED => return limit,
                _ => {}
            }
        }
    }

    /// Two limits under each name, as while a plan is being changed, and now and then any other.
    fn charge(&mut self, key: &'static str, name: &str) -> Charge<'static> {
        let name_of_shape = match self.random.u32(0..8) {
            0 => NAMES[self.random.usize(..NAMES.len())],
            _ => name,
        };
        let limit = if PERMITS.contains(&name_of_shape) {
            let hold = Duration::from_secs([600, 600, 1_200][self.random.usize(..3)]);
            Limit::concurrent(self.random.u64(1..4)).hold(hold).build().expect("within bounds")
        } else if let Some(quota) = QUOTAS.iter().position(|quota| *quota == name_of_shape) {
            let other = usize::from(self.random.u32(0..8) == 0);
            self.quota(self.windows[(quota + other) % 2])
        } else {
            self.rate_under(name)
        };
        self.charge_under(key, name, limit)
    }

    /// One of the two limits of this name, or a random one.
    fn rate_under(&mut self, name: &str) -> Limit {
        match self.random.u32(0..8) {
            0 => limits(name)[1],
            1..5 => limits(name)[0],
            _ => self.rate(),
        }
    }

    fn charge_under(&mut self, key: &'static str, name: &str, limit: Limit) -> Charge<'static> {
        let capacity = limit.capacity();
        let cost = match self.random.u32(0..12) {
            0 => Amount::ZERO,
            1..6 => Amount::TOKEN,
            6..9 => Amount::from(self.random.u64(0..=capacity.whole_tokens().min(20))),
            9..11 => Amount::from_micro(PARTS[self.random.usize(..PARTS.len())]),
            _ => Amount::from_micro(self.random.i64(0..=capacity.micro())),
        };
        let named = NamedLimit::new(LimitName::new(name).expect("a sound name"), limit);
        let cost = Cost::new(cost.min(capacity)).expect("a sound cost");
        Charge::new(Key::new(key).expect("a sound key"), named, cost).expect("a cost that is covered")
    }

    fn compare_what_is_stored(&self, round: &Round) {
        for key in KEYS {
            for name in NAMES {
                let stored = self.stored_permits(key, name);
                let model = round.model.permits(key, name).into_iter();
                let model: Vec<_> = model.map(|held| (held.id.to_string(), held.until.get())).collect();
                assert_eq!(stored, model, "seed {}: {key} {name}", self.seed);
            }
            let mut marker = None;
            for charge in self.buckets(key) {
                let place = place_of(&charge);
                let mut model = round.model.bucket(&charge);
                let stored = if place[0].contains(":reservation:") && place[1] != "u" {
                    // The model keeps the amounts of a reservation whose id was used again.
                    let is_of_marker = |bucket: &Bucket| {
                        marker == Some(Bucket::new(Amount::ZERO, bucket.moment()))
                            && bucket.amount() > Amount::ZERO
                    };
                    model = model.filter(is_of_marker);
                    self.stored_settled(&place)
                } else {
                    marker = model;
                    self.stored(&place)
                };
                assert_eq!(stored, model, "seed {}: {place:?}", self.seed);
            }
        }
    }

    /// All that a key may have, with the markers.
    fn buckets(&self, key: &'static str) -> Vec<Charge<'static>> {
        let shapes = [Limit::per_second(1).build(), Limit::per_window(1, self.windows[0]).build()];
        let shapes = shapes.map(|limit| limit.expect("within bounds"));
        let any = Charges::from(bucket(key, NAMES[0], shapes[0]));
        let refund = |id: &&'static str| Operation::Refund {
            spent: SpendTime::Unknown,
            once: Some(RefundId::new(id).expect("a sound id")),
        };
        // As many amounts as the longest chain has.
        let settle = |number| Operation::Settle(reservation(number, TTLS[0]), &[Cost::ZERO; 4]);
        let operations = IDS.iter().map(refund).chain((0..RESERVATIONS).map(settle));
        let markers = operations.flat_map(|operation| {
            let (all, count) = (operation.with_markers(&any).into_owned(), operation.markers().len());
            all.into_iter().take(count)
        });
        NAMES.iter().flat_map(|name| shapes.map(|limit| bucket(key, name, limit))).chain(markers).collect()
    }

    fn stored_permits(&self, key: &str, name: &str) -> Vec<(String, u64)> {
        let [set, ..] = place(key, name, ShapeKind::Concurrency);
        let reply = self.server.command(&["ZRANGE", &set, "0", "-1", "WITHSCORES"]);
        let pairs = reply.list().chunks(2);
        pairs.map(|pair| (pair[0].text().to_owned(), pair[1].text().parse().expect("digits"))).collect()
    }

    /// The amount above zero at which a charge was settled. The field of its place begins with its number in the chain.
    fn stored_settled(&self, [hash, field, _]: &BucketPlace) -> Option<Bucket> {
        let marker = self.stored(&[hash.clone(), "u".to_owned(), "ue".to_owned()])?;
        let amounts = self.server.command(&["HGET", hash, "a"]);
        let number: usize = field.split(':').next()?.parse().expect("a number");
        let (RedisReply::Text(amounts), true) = (amounts, marker.amount() == Amount::ZERO) else {
            return None;
        };
        let amount = amounts.split(',').nth(number - 1)?.parse().expect("digits");
        Some(Bucket::new(Amount::from_micro(amount), marker.moment()))
            .filter(|bucket| bucket.amount() > Amount::ZERO)
    }

    fn stored(&self, place: &BucketPlace) -> Option<Bucket> {
        let [hash, amount, time] = place;
        let reply = self.server.command(&["HMGET", hash, amount, time, "v"]);
        match reply.list() {
            [RedisReply::Nil, RedisReply::Nil, _] => None,
            [amount, time, version] if version.text() == "1" => {
                let number = |digits: &RedisReply| digits.text().parse::<i64>().expect("plain digits");
                Some(Bucket::new(
                    Amount::from_micro(number(amount)),
                    Micros::new(number(time).unsigned_abs()),
                ))
            }
            fields => panic!("seed {}: {place:?} holds {fields:?}", self.seed),
        }
    }
}

impl Step {
    /// The store's reply.
    async fn take(&self, store: &impl Store) -> Reply {
        store.ask(self.operation(), &self.charges).await.expect("an answer")
    }

    /// Notes when the buckets and markers will be full.
    fn note(&self, reply: &Reply, round: &mut Round) {
        note(&self.operation(), &self.charges, reply, round);
    }

    fn operation(&self) -> Operation<'_> {
        match &self.kind {
            Kind::Spend => Operation::Spend,
            Kind::Peek => Operation::Peek,
            Kind::SpendUpTo => Operation::SpendUpTo,
            Kind::Refund(spent) => Operation::Refund { spent: *spent, once: None },
            Kind::RefundOnce(id, spent) => {
                Operation::Refund { spent: *spent, once: Some(RefundId::new(id).expect("a sound id")) }
            }
            Kind::Charge => Operation::Charge,
            Kind::Reserve(id) => Operation::Reserve(*id),
            Kind::Settle(id, costs) => Operation::Settle(*id, costs),
            Kind::Permit(id, step) => Operation::Permit(id, *step),
            Kind::Reset => Operation::Reset,
        }
    }
}

/// Notes when the buckets and markers of an operation will be full.
fn note(operation: &Operation<'_>, charges: &Charges<'_>, reply: &Reply, round: &mut Round) {
    for charge in operation.with_markers(charges).iter() {
        let (place, limit) = (place_of(charge), charge.limit().limit());
        match round.model.bucket(charge) {
            Some(bucket) => {
                let full_in = bucket.wait_for_us(limit, limit.capacity(), reply.at);
                round.lifetimes.note(place, OperationKind::of(operation), reply.verdict, full_in.into());
            }
            None => round.lifetimes.forget(&place),
        }
    }
}

fn bucket(key: &'static str, name: &str, limit: Limit) -> Charge<'static> {
    let name = LimitName::new(name).expect("a sound name");
    Charge::late(Key::new(key).expect("a sound key"), NamedLimit::new(name, limit), Cost::ONE)
}

fn place_of(charge: &Charge<'_>) -> BucketPlace {
    let limit = charge.limit();
    place(charge.key().as_str(), limit.name().as_str(), ShapeKind::of(limit.limit().shape()))
}

fn reservation(number: u128, ttl: u64) -> ReservationId {
    ReservationId::new(number, Duration::from_secs(ttl)).expect("within bounds")
}

/// The windows of any quota. No bucket of one expires in real time within minutes.
fn windows(random: &mut Rng) -> QuotaWindows {
    const ZONES: [&str; 8] = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Sao_Paulo",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Africa/Monrovia",
    ];
    let period = Period::ALL[random.usize(..Period::ALL.len())];
    let quota = Limit::quota(1).per(period).zone(ZONES[random.usize(..ZONES.len())]).expect("a zone");
    let anchored = match period {
        Period::Minute | Period::Hour => Ok(quota),
        Period::Day => quota.anchor(random.i64(0..24)),
        Period::Week => quota.anchor(["mon", "wed", "sunday"][random.usize(..3)]),
        Period::Month => quota.anchor(random.i64(1..=31)),
        Period::Year => quota.anchor(["01-01", "02-29", "12-31", "06-15"][random.usize(..4)]),
    };
    let limit = anchored.expect("an anchor").build().expect("within bounds");
    limit.windows().expect("a quota has windows")
}

/// Slow enough that nothing expires in real time while the test's clock stands still.
fn limits(name: &str) -> [Limit; 2] {
    let limits = match name {
        "free" => ["10, 1/s", "25, 7/10s"],
        "gold/burst" => ["1000000, 33333/s", "10, 1/h"],
        _ => ["1000000000, 100000000/day", "7, 3/h"],
    };
    limits.map(|text| text.parse().expect("a sound limit"))
}
