//! Random questions of all operations, about chains of all shapes.

use std::time::Duration;

use fastrand::Rng;
use spile_calendar::CalendarLimit;
use spile_core::{
    Amount, Charge, Charges, Cost, Key, Limit, LimitName, Micros, NamedLimit, Operation, PermitId,
    PermitStep, RefundId, ReservationId, SpendTime,
};

const KEYS: [&str; 3] = ["ann", "bob", "{eve}:x"];
const NAMES: [&str; 8] =
    ["free", "gold", "gold/burst", "gold/slow", "gold/daily", "month", "gold/jobs", "jobs"];
const REFUNDS: [&str; 2] = ["order-7", "order 8 {}:%"];
/// Costs in micro-tokens that are no whole tokens.
const PARTS: [i64; 3] = [1, 499_999, 2_000_001];

/// One question.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    kind: Kind,
    pub(crate) charges: Charges<'static>,
}

#[derive(Clone, Debug)]
enum Kind {
    Spend,
    Peek,
    SpendUpTo,
    Charge,
    Refund(SpendTime, Option<&'static str>),
    Reserve(ReservationId),
    Settle(ReservationId, Vec<Cost>),
    Permit(PermitId, PermitStep),
    Reset,
}

impl Question {
    /// A question at `now`. A question about rates needs only the shorter script.
    pub(crate) fn draw(random: &mut Rng, now: Micros, only_rates: bool) -> Self {
        let names = if only_rates { &NAMES[..4] } else { &NAMES };
        let mut chain: Vec<Charge<'static>> = Vec::new();
        let length = if random.bool() { 1 } else { random.usize(1..=4) };
        let kind = match random.u32(0..if only_rates { 18 } else { 34 }) {
            0..10 => Kind::Spend,
            10 | 11 => Kind::Peek,
            12 | 13 => Kind::SpendUpTo,
            14 | 15 => Kind::Charge,
            16 => Kind::Refund(spend_time(random, now), None),
            17 if only_rates => Kind::Refund(SpendTime::Unknown, None),
            17 | 18 => Kind::Refund(spend_time(random, now), Some(REFUNDS[random.usize(..2)])),
            19..22 => Kind::Reserve(reservation(random)),
            22..24 => Kind::Settle(reservation(random), Vec::new()),
            24..33 => permit(random, now),
            _ => Kind::Reset,
        };
        while chain.len() < length {
            let key = KEYS[random.usize(..KEYS.len())];
            let name = names[random.usize(..names.len())];
            let is_taken =
                |charge: &Charge<'_>| (charge.key().as_str(), charge.limit().name().as_str()) == (key, name);
            if !chain.iter().any(is_taken) {
                chain.push(charge(random, key, name, matches!(kind, Kind::Charge)));
            }
        }
        let mut question = Self { kind, charges: Charges::distinct(chain).expect("no bucket twice") };
        if let Kind::Settle(_, costs) = &mut question.kind {
            let cost = |charge: &Charge<'_>| {
                Cost::saturating(Amount::from_micro(random.i64(0..=2 * charge.cost().amount().micro())))
            };
            *costs = question.charges.iter().map(cost).collect();
        }
        question
    }

    pub(crate) fn operation(&self) -> Operation<'_> {
        match &self.kind {
            Kind::Spend => Operation::Spend,
            Kind::Peek => Operation::Peek,
            Kind::SpendUpTo => Operation::SpendUpTo,
            Kind::Charge => Operation::Charge,
            Kind::Refund(spent, once) => {
                let once = once.map(|id| RefundId::new(id).expect("a short id"));
                Operation::Refund { spent: *spent, once }
            }
            Kind::Reserve(id) => Operation::Reserve(*id),
            Kind::Settle(id, costs) => Operation::Settle(*id, costs),
            Kind::Permit(id, step) => Operation::Permit(id, *step),
            Kind::Reset => Operation::Reset,
        }
    }
}

/// Unknown, in this window, or at a moment within the last two days.
fn spend_time(random: &mut Rng, now: Micros) -> SpendTime {
    match random.u32(0..4) {
        0 => SpendTime::Unknown,
        1 => SpendTime::ThisWindow,
        _ => SpendTime::At(Micros::new(now.get().saturating_sub(random.u64(..172_800_000_000)))),
    }
}

fn reservation(random: &mut Rng) -> ReservationId {
    let ttl = Duration::from_secs([600, 86_400][random.usize(..2)]);
    ReservationId::new(random.u128(..4), ttl).expect("within bounds")
}

/// One of few permits, so that most steps are about one that is held.
fn permit(random: &mut Rng, now: Micros) -> Kind {
    let release = PermitStep::Release(spend_time(random, now));
    let steps = [PermitStep::Acquire, PermitStep::Acquire, PermitStep::Retake, PermitStep::Renew, release];
    let id = PermitId::new(Micros::from_secs(1), Duration::ZERO, random.u128(..8), "")
        .expect("a permit of nobody");
    Kind::Permit(id, steps[random.usize(..steps.len())])
}

/// The limit of a name, which has two, as while a plan changes, and now and then that of another name.
fn limit(random: &mut Rng, name: &str) -> Limit {
    let name = if random.u32(0..12) == 0 { NAMES[random.usize(..NAMES.len())] } else { name };
    let changed = random.u32(0..6) == 0;
    let limit = match name {
        "free" => Limit::per(1, Duration::from_secs(60)).burst(if changed { 3 } else { 10 }).build(),
        "gold" => Limit::per(100, Duration::from_secs(3600)).debt(50).build(),
        "gold/burst" => Limit::per(3, Duration::from_secs(7)).burst(40).debt(u64::from(changed) * 7).build(),
        "gold/slow" => Limit::per(2, Duration::from_secs(86_400 * 30)).burst(7).build(),
        "gold/daily" => Limit::quota(100).per_day().debt(20).build(),
        "month" => Limit::quota(if changed { 7 } else { 1_000 }).per_month().build(),
        _ => {
            let hold = Duration::from_secs(if changed { 1_500 } else { 600 });
            Limit::concurrent(random.u64(1..4)).hold(hold).build()
        }
    };
    limit.expect("within bounds")
}

fn charge(random: &mut Rng, key: &'static str, name: &str, is_late: bool) -> Charge<'static> {
    let limit = limit(random, name);
    let capacity = limit.capacity();
    let cost = match random.u32(0..8) {
        0 => Amount::ZERO,
        1..4 => Amount::TOKEN,
        4..6 => Amount::from(random.u64(0..=capacity.whole_tokens())),
        6 => Amount::from_micro(PARTS[random.usize(..PARTS.len())]),
        _ => Amount::from_micro(random.i64(0..=capacity.micro())),
    };
    let named = NamedLimit::new(LimitName::new(name).expect("a sound name"), limit);
    let key = Key::new(key).expect("a sound key");
    if is_late {
        return Charge::late(key, named, Cost::saturating(cost * random.u64(0..=3)));
    }
    Charge::new(key, named, Cost::saturating(cost.min(capacity))).expect("a cost that is covered")
}
