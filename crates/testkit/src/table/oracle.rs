//! The expected reply of a store, calculated from the design in plain integers.
//!
//! Uses nothing of `spile-core` but its enums, so that a mistake there is not repeated here. Amounts are micro-tokens and times
//! microseconds, both in 128 bits, and rates are fractions.

use std::collections::BTreeMap;

use spile_core::{PermitStep, SpendTime, Verdict};

use super::axes::{OperationKind, ShapeKind};

/// Microseconds per second.
pub const SECOND: i128 = 1_000_000;
/// Micro-tokens per token.
pub const TOKEN: i128 = 1_000_000;
/// A bucket written further ahead of the clock is rebased; a permit that ends further beyond its hold time is shortened.
const JITTER: i128 = SECOND;
/// How long the id of a refund is remembered, and a reservation after its time to settle.
const REMEMBERED: i128 = 3_600 * SECOND;
/// When to ask for a permit again.
const ASK_AGAIN: i128 = SECOND;

/// A limit as plain numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlainLimit {
    /// The most that a bucket holds; of a concurrency its permits, in micro-tokens.
    pub capacity: i128,
    /// The smallest amount that cost 0 asks for.
    pub quantum: i128,
    /// How far late charges may go below zero.
    pub debt: i128,
    /// When the tokens come back.
    pub shape: PlainShape,
}

/// The numbers of a shape.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlainShape {
    /// `refill` comes back every `period`.
    Rate {
        /// An amount.
        refill: i128,
        /// A time.
        period: i128,
    },
    /// Windows of this length, which tile time from the epoch.
    Quota {
        /// The length.
        window: i128,
    },
    /// Permits that end after this time.
    Concurrency {
        /// The time.
        hold: i128,
    },
}

impl PlainShape {
    /// Its kind.
    pub const fn kind(self) -> ShapeKind {
        match self {
            Self::Rate { .. } => ShapeKind::Rate,
            Self::Quota { .. } => ShapeKind::Quota,
            Self::Concurrency { .. } => ShapeKind::Concurrency,
        }
    }
}

/// A charge of a question.
#[derive(Clone, Copy, Debug)]
pub struct PlainCharge {
    /// Who pays.
    pub key: &'static str,
    /// The name of the limit.
    pub name: &'static str,
    /// The limit.
    pub limit: PlainLimit,
    /// The cost.
    pub cost: i128,
}

/// A question to a store.
#[derive(Clone, Debug)]
pub struct PlainQuestion {
    /// The operation.
    pub operation: OperationKind,
    /// Its charges.
    pub charges: Vec<PlainCharge>,
    /// The permit that it is about, if it is about one.
    pub permit: u128,
    /// The amount that a settled reservation costs in the end.
    pub actual: i128,
}

/// The reply of a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlainReply {
    /// Whether it was done.
    pub verdict: Verdict,
    /// The amount that a partial spend granted, or that no debt covered.
    pub amount: i128,
    /// When.
    pub at: i128,
    /// The bucket of each charge.
    pub buckets: Vec<PlainStatus>,
    /// The amount at which each charge was settled.
    pub settled: Vec<i128>,
}

/// A bucket after a question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlainStatus {
    /// The amount available; a debt is below zero.
    pub available: i128,
    /// Until the cost is available.
    pub retry_after: i128,
    /// Until the bucket is full.
    pub reset_after: i128,
}

impl PlainReply {
    /// True if both are the same within one micro-token and one microsecond.
    pub fn is_near(&self, other: &Self) -> bool {
        let near = |one: i128, other: i128| (one - other).abs() <= 1;
        self.verdict == other.verdict
            && (self.at, &self.settled) == (other.at, &other.settled)
            && near(self.amount, other.amount)
            && self.buckets.len() == other.buckets.len()
            && self.buckets.iter().zip(&other.buckets).all(|(one, other)| {
                near(one.available, other.available)
                    && near(one.retry_after, other.retry_after)
                    && near(one.reset_after, other.reset_after)
            })
    }
}

/// The state of one bucket. A bucket without state is full.
#[derive(Clone, Debug)]
enum PlainBucket {
    Rate {
        held: i128,
        written: i128,
    },
    Quota {
        used: i128,
        ends: i128,
    },
    /// When each permit ends.
    Permits(BTreeMap<u128, i128>),
}

/// Key, name of the limit, shape: the identity of a bucket.
type BucketName = (&'static str, &'static str, ShapeKind);

/// A store that remembers everything and calculates exactly.
#[derive(Debug, Default)]
pub struct Oracle {
    /// When it was made.
    start: i128,
    now: i128,
    buckets: BTreeMap<BucketName, PlainBucket>,
    /// When each refund with an id was given.
    refunds: BTreeMap<&'static str, i128>,
    /// The reservation of each first key.
    reservations: BTreeMap<&'static str, PlainReservation>,
}

/// A reservation that the store has not forgotten.
#[derive(Clone, Debug)]
struct PlainReservation {
    made: i128,
    /// The amount of each charge, once it was settled.
    settled: Option<Vec<i128>>,
}

/// How long a reservation of the table can be settled.
pub const RESERVATION_TTL: i128 = 64 * SECOND;

impl Oracle {
    /// An empty store at this moment.
    pub fn new(now: i128) -> Self {
        Self { start: now, now, ..Self::default() }
    }

    /// Moves its clock, in either direction.
    pub fn pass(&mut self, us: i128) {
        self.now += us;
    }

    /// Answers a question.
    pub fn answer(&mut self, question: &PlainQuestion) -> PlainReply {
        let mut charges = merged(&question.charges);
        for charge in charges.iter_mut().filter(|charge| charge.limit.shape.kind() == ShapeKind::Concurrency)
        {
            charge.cost = TOKEN;
        }
        let key = charges[0].key;
        match question.operation {
            OperationKind::Spend => self.spend(&charges, None, true),
            OperationKind::Peek => {
                let covered = charges.iter().all(|charge| self.covers(charge));
                self.reply(Verdict::done_if(covered), 0, &charges)
            }
            OperationKind::SpendUpTo => self.spend_up_to(&charges),
            OperationKind::Charge => self.charge(&charges),
            OperationKind::Refund => self.refund(&charges, None),
            OperationKind::RefundThisWindow => self.refund(&charges, Some(self.now)),
            OperationKind::RefundSpentAt => self.refund(&charges, Some(self.start)),
            OperationKind::RefundOnce => {
                let given = self.refunds.get(key).is_some_and(|at| self.now - at < REMEMBERED);
                if given {
                    return self.reply(Verdict::Before, 0, &charges);
                }
                self.refunds.insert(key, self.now);
                self.refund(&charges, Some(self.now))
            }
            OperationKind::Reserve => {
                let reply = self.spend(&charges, None, self.reservation(key).is_none());
                if reply.verdict == Verdict::Done {
                    self.reservations.insert(key, PlainReservation { made: self.now, settled: None });
                }
                reply
            }
            OperationKind::Settle => self.settle(&charges, key, question.actual),
            OperationKind::Acquire | OperationKind::Retake => {
                self.spend(&charges, Some(question.permit), true)
            }
            OperationKind::Renew => self.renew(&charges, question.permit),
            OperationKind::Release => self.release(&charges, question.permit),
            OperationKind::Reset => {
                for charge in &charges {
                    self.buckets.remove(&name(charge));
                }
                self.reply(Verdict::Done, 0, &charges)
            }
        }
    }

    fn spend(&mut self, charges: &[PlainCharge], permit: Option<u128>, may: bool) -> PlainReply {
        if permit.is_some() {
            for charge in charges {
                self.shorten(charge);
            }
        }
        let done = may && charges.iter().all(|charge| self.covers(charge) || self.is_held(charge, permit));
        for charge in charges {
            self.rebase(charge);
            match (charge.limit.shape, permit) {
                (PlainShape::Concurrency { hold }, Some(permit)) if done => {
                    let until = self.now + hold;
                    self.permits(charge).insert(permit, until);
                }
                (PlainShape::Concurrency { .. }, _) => {}
                _ if done && charge.cost > 0 => self.leave(charge, self.available(charge) - charge.cost),
                _ => {}
            }
        }
        self.reply(Verdict::done_if(done), 0, charges)
    }

    fn spend_up_to(&mut self, charges: &[PlainCharge]) -> PlainReply {
        let most =
            charges.iter().map(|charge| self.available(charge).min(charge.cost)).min().unwrap_or(0).max(0);
        let quantum = charges.iter().map(|charge| charge.limit.quantum).max().unwrap_or(1);
        let granted = most - most % quantum;
        for charge in charges.iter().filter(|charge| charge.limit.shape.kind() != ShapeKind::Concurrency) {
            self.rebase(charge);
            if granted > 0 {
                self.leave(charge, self.available(charge) - granted);
            }
        }
        self.reply(Verdict::done_if(granted > 0), granted, charges)
    }

    fn charge(&mut self, charges: &[PlainCharge]) -> PlainReply {
        let mut uncovered = 0;
        for charge in charges {
            uncovered = uncovered.max(self.charge_late(charge, charge.cost));
        }
        self.reply(Verdict::Done, uncovered, charges)
    }

    /// Returns what no debt covers.
    fn charge_late(&mut self, charge: &PlainCharge, cost: i128) -> i128 {
        if cost == 0 || charge.limit.shape.kind() == ShapeKind::Concurrency {
            return 0;
        }
        self.rebase(charge);
        let available = self.available(charge);
        let lowest = available.min(-charge.limit.debt);
        let left = (available - cost).max(lowest);
        self.leave(charge, left);
        cost - (available - left)
    }

    fn refund(&mut self, charges: &[PlainCharge], spent: Option<i128>) -> PlainReply {
        for charge in charges {
            self.give_back(charge, charge.cost, spent);
        }
        self.reply(Verdict::Done, 0, charges)
    }

    fn give_back(&mut self, charge: &PlainCharge, cost: i128, spent: Option<i128>) {
        let is_of_this_window = match (self.buckets.get(&name(charge)), charge.limit.shape) {
            (Some(PlainBucket::Quota { ends, .. }), PlainShape::Quota { window }) => {
                let ends = rebased_quota(*ends, window, self.now);
                spent.is_some_and(|spent| self.now < ends && window_end(spent, window) == ends)
            }
            (bucket, shape) => bucket.is_some() && shape.kind() == ShapeKind::Rate,
        };
        if is_of_this_window && cost > 0 {
            self.rebase(charge);
            self.leave(charge, (self.available(charge) + cost).min(charge.limit.capacity));
        }
    }

    fn settle(&mut self, charges: &[PlainCharge], key: &'static str, actual: i128) -> PlainReply {
        let Some(PlainReservation { made, settled }) = self.reservation(key) else {
            return self.reply(Verdict::Unknown, 0, charges);
        };
        if let Some(settled) = settled {
            return PlainReply { settled, ..self.reply(Verdict::Before, 0, charges) };
        }
        if self.now - made >= RESERVATION_TTL {
            return self.reply(Verdict::Expired, 0, charges);
        }
        let settled = vec![actual; charges.len()];
        self.reservations.insert(key, PlainReservation { made, settled: Some(settled.clone()) });
        let mut uncovered = 0;
        for charge in charges {
            if actual > charge.cost {
                uncovered = uncovered.max(self.charge_late(charge, actual - charge.cost));
            } else {
                self.give_back(charge, charge.cost - actual, Some(made));
            }
        }
        PlainReply { settled, ..self.reply(Verdict::Done, uncovered, charges) }
    }

    /// The reservation of a key, until it is forgotten.
    fn reservation(&self, key: &str) -> Option<PlainReservation> {
        self.reservations.get(key).filter(|made| self.now - made.made < RESERVATION_TTL + REMEMBERED).cloned()
    }

    fn renew(&mut self, charges: &[PlainCharge], permit: u128) -> PlainReply {
        let held = charges
            .iter()
            .filter(|charge| takes_permit(charge))
            .all(|charge| self.is_held(charge, Some(permit)));
        for charge in charges {
            if let (PlainShape::Concurrency { hold }, true) = (charge.limit.shape, held) {
                let until = self.now + hold;
                self.permits(charge).insert(permit, until);
            }
        }
        self.step_reply(held, charges)
    }

    fn release(&mut self, charges: &[PlainCharge], permit: u128) -> PlainReply {
        let held = charges.iter().any(|charge| self.is_held(charge, Some(permit)));
        for charge in charges {
            if takes_permit(charge) {
                self.permits(charge).remove(&permit);
            } else if held {
                self.give_back(charge, charge.cost, Some(self.now));
            }
        }
        self.step_reply(held, charges)
    }

    /// Renew and release report the places as free.
    fn step_reply(&self, done: bool, charges: &[PlainCharge]) -> PlainReply {
        let mut reply = self.reply(Verdict::done_if(done), 0, charges);
        for (charge, bucket) in charges.iter().zip(&mut reply.buckets) {
            if takes_permit(charge) {
                *bucket = PlainStatus { available: charge.limit.capacity, retry_after: 0, reset_after: 0 };
            }
        }
        reply
    }

    fn covers(&self, charge: &PlainCharge) -> bool {
        self.available(charge) >= asked(charge)
    }

    fn is_held(&self, charge: &PlainCharge, permit: Option<u128>) -> bool {
        match (self.buckets.get(&name(charge)), permit) {
            (Some(PlainBucket::Permits(held)), Some(permit)) => {
                held.get(&permit).is_some_and(|until| *until > self.now)
            }
            _ => false,
        }
    }

    fn available(&self, charge: &PlainCharge) -> i128 {
        let PlainLimit { capacity, shape, .. } = charge.limit;
        match (self.buckets.get(&name(charge)), shape) {
            (Some(PlainBucket::Rate { held, written }), PlainShape::Rate { refill, period }) => {
                let written = rebased_rate(*written, self.now);
                capacity.min(held + ((self.now - written).max(0) * refill).div_euclid(period))
            }
            (Some(PlainBucket::Quota { used, ends }), PlainShape::Quota { .. }) if self.now < *ends => {
                capacity - used
            }
            (Some(PlainBucket::Permits(held)), PlainShape::Concurrency { .. }) => {
                let held = held.values().filter(|until| **until > self.now).count();
                (capacity - i128::try_from(held).unwrap_or(i128::MAX) * TOKEN).max(0)
            }
            _ => capacity,
        }
    }

    /// Time from now until `wanted` is available.
    fn wait(&self, charge: &PlainCharge, wanted: i128) -> i128 {
        if self.available(charge) >= wanted {
            return 0;
        }
        match (self.buckets.get(&name(charge)), charge.limit.shape) {
            (Some(PlainBucket::Rate { held, written }), PlainShape::Rate { refill, period }) => {
                let missing = (wanted - held) * period;
                let gained = missing.div_euclid(refill) + i128::from(missing.rem_euclid(refill) > 0);
                (rebased_rate(*written, self.now) + gained - self.now).max(0)
            }
            (Some(PlainBucket::Quota { ends, .. }), PlainShape::Quota { window }) => {
                rebased_quota(*ends, window, self.now) - self.now
            }
            _ => ASK_AGAIN,
        }
    }

    fn leave(&mut self, charge: &PlainCharge, left: i128) {
        let now = self.now;
        let state = match charge.limit.shape {
            PlainShape::Rate { .. } => {
                let written = match self.buckets.get(&name(charge)) {
                    Some(PlainBucket::Rate { written, .. }) => (*written).max(now),
                    _ => now,
                };
                PlainBucket::Rate { held: left, written }
            }
            PlainShape::Quota { window } => {
                let ends = match self.buckets.get(&name(charge)) {
                    Some(PlainBucket::Quota { ends, .. }) => {
                        rebased_quota(*ends, window, now).max(window_end(now, window))
                    }
                    _ => window_end(now, window),
                };
                PlainBucket::Quota { used: charge.limit.capacity - left, ends }
            }
            PlainShape::Concurrency { .. } => return,
        };
        self.buckets.insert(name(charge), state);
    }

    /// Brings a bucket that was written in the future back, which is written even if nothing else is.
    fn rebase(&mut self, charge: &PlainCharge) {
        let now = self.now;
        match (self.buckets.get_mut(&name(charge)), charge.limit.shape) {
            (Some(PlainBucket::Rate { written, .. }), _) => *written = rebased_rate(*written, now),
            (Some(PlainBucket::Quota { ends, .. }), PlainShape::Quota { window }) if now < *ends => {
                *ends = rebased_quota(*ends, window, now);
            }
            _ => {}
        }
    }

    /// Ends permits on time if the clock has stepped back while all places are taken.
    fn shorten(&mut self, charge: &PlainCharge) {
        let PlainShape::Concurrency { hold } = charge.limit.shape else { return };
        let (latest, now) = (self.now + hold, self.now);
        let is_full = self.available(charge) == 0;
        let held = self.permits(charge);
        held.retain(|_, until| *until > now);
        if is_full {
            held.values_mut().filter(|until| **until > latest + JITTER).for_each(|until| *until = latest);
        }
    }

    fn permits(&mut self, charge: &PlainCharge) -> &mut BTreeMap<u128, i128> {
        match self.buckets.entry(name(charge)).or_insert_with(|| PlainBucket::Permits(BTreeMap::new())) {
            PlainBucket::Permits(held) => held,
            PlainBucket::Rate { .. } | PlainBucket::Quota { .. } => {
                unreachable!("the shape is part of the name")
            }
        }
    }

    fn reply(&self, verdict: Verdict, amount: i128, charges: &[PlainCharge]) -> PlainReply {
        let status = |charge: &PlainCharge| PlainStatus {
            available: self.available(charge),
            retry_after: self.wait(charge, asked(charge)),
            reset_after: self.wait(charge, charge.limit.capacity),
        };
        PlainReply {
            verdict,
            amount,
            at: self.now,
            buckets: charges.iter().map(status).collect(),
            settled: Vec::new(),
        }
    }
}

/// Two charges of one bucket are one, at the higher cost.
fn merged(charges: &[PlainCharge]) -> Vec<PlainCharge> {
    let mut merged: Vec<PlainCharge> = Vec::new();
    for charge in charges {
        match merged.iter_mut().find(|other| (other.key, other.name) == (charge.key, charge.name)) {
            Some(other) => other.cost = other.cost.max(charge.cost),
            None => merged.push(*charge),
        }
    }
    merged
}

fn name(charge: &PlainCharge) -> BucketName {
    (charge.key, charge.name, charge.limit.shape.kind())
}

fn takes_permit(charge: &PlainCharge) -> bool {
    charge.limit.shape.kind() == ShapeKind::Concurrency
}

/// The amount that a bucket must have.
const fn asked(charge: &PlainCharge) -> i128 {
    if charge.cost == 0 { charge.limit.quantum } else { charge.cost }
}

const fn rebased_rate(written: i128, now: i128) -> i128 {
    if written - now > JITTER { now } else { written }
}

/// A bucket of the next window stays there: bringing it back would make that window unused.
const fn rebased_quota(ends: i128, window: i128, now: i128) -> i128 {
    let end = window_end(now, window);
    if ends > end + window { end } else { ends }
}

const fn window_end(now: i128, window: i128) -> i128 {
    now - now % window + window
}

/// The step of an operation on a permit.
pub const fn permit_step(operation: OperationKind) -> Option<PermitStep> {
    match operation {
        OperationKind::Acquire => Some(PermitStep::Acquire),
        OperationKind::Retake => Some(PermitStep::Retake),
        OperationKind::Renew => Some(PermitStep::Renew),
        OperationKind::Release => Some(PermitStep::Release(SpendTime::ThisWindow)),
        _ => None,
    }
}
