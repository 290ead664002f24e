//! One atomic step over the buckets of a chain, as a pure function: a store reads the buckets, calls this and
//! writes back what is marked. `spend.lua` says the same in Lua.

use crate::{
    Bucket, Charge, ChargeOutcome, Charges, Cost, MicroTokens, Micros, OneOrMany, Outcome, PartialOutcome,
    RefundOutcome, ReservationMarker, SettleOutcome,
};

/// A bucket during a step: first what the store read, then what it has to write.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BucketSlot {
    /// What the store holds. `None` if the key has no state; if it is dirty, the store must remove what it holds.
    pub bucket: Option<Bucket>,
    /// Whether the store must write [`bucket`](Self::bucket) back.
    pub dirty: bool,
}

impl BucketSlot {
    /// A slot as read.
    pub const fn read(bucket: Option<Bucket>) -> Self {
        Self { bucket, dirty: false }
    }
}

/// Spends every charge, or none of them.
///
/// A denial writes nothing, with one exception: a bucket far ahead of the clock is rebased. Otherwise its key would stay
/// locked until the clock caught up. A charge of cost zero never writes.
///
/// A concurrency must have a free place, but no permit is taken: that takes an id, and so [`acquire`].
pub fn spend(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Outcome {
    spend_all(charges, slots, now, false)
}

/// Spends as [`spend`] does, and takes a place of each concurrency of the chain. Their slots hold the
/// [free places](Bucket::places), with one more if the permit is held already. If it is allowed, the store notes the permit.
pub fn acquire(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Outcome {
    spend_all(charges, slots, now, true)
}

fn spend_all(charges: &[Charge<'_>], slots: &mut [BucketSlot], now: Micros, takes_places: bool) -> Outcome {
    let mut stands = standings(charges, slots, now);
    let allowed = covered(charges, &stands, now);
    for ((charge, slot), stand) in charges.iter().zip(slots).zip(stands.iter_mut()) {
        if charge.cost() == Cost::ZERO || charge.needs_permit() && !takes_places {
            continue;
        }
        let rebased = slot.bucket.is_some_and(|bucket| bucket.lies_ahead_of(charge.limit().limit(), now));
        if allowed && let Some(spent) = stand.spend(charge.limit().limit(), charge.cost(), now) {
            *stand = spent;
        }
        if allowed || rebased {
            *slot = BucketSlot { bucket: Some(*stand), dirty: true };
        }
    }
    Outcome { allowed, at: now, buckets: stands }
}

/// Answers as [`spend`] would, and writes nothing: the buckets are shown as they are.
pub fn peek(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Outcome {
    let stands = standings(charges, slots, now);
    let allowed = covered(charges, &stands, now);
    Outcome { allowed, at: now, buckets: stands }
}

/// Spends as many whole tokens as every bucket of the chain has, up to the smallest cost asked for.
pub fn spend_up_to(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> PartialOutcome {
    let mut stands = standings(charges, slots, now);
    let most = |(charge, bucket): (&Charge<'_>, &Bucket)| {
        let there = bucket.available(charge.limit().limit(), now).whole_tokens();
        there.min(u64::from(charge.cost().get()))
    };
    let tokens = charges.iter().zip(stands.iter()).map(most).min().unwrap_or(0);
    let granted = Cost::new(tokens).unwrap_or(Cost::ZERO);
    for ((charge, slot), stand) in charges.iter().zip(slots).zip(stands.iter_mut()) {
        if charge.needs_permit() {
            continue;
        }
        let rebased = slot.bucket.is_some_and(|bucket| bucket.lies_ahead_of(charge.limit().limit(), now));
        if granted > Cost::ZERO
            && let Some(spent) = stand.spend(charge.limit().limit(), granted, now)
        {
            *stand = spent;
        }
        if granted > Cost::ZERO || rebased {
            *slot = BucketSlot { bucket: Some(*stand), dirty: true };
        }
    }
    let allowed = granted > Cost::ZERO;
    PartialOutcome { tokens: granted.get(), outcome: Outcome { allowed, at: now, buckets: stands } }
}

/// Takes every cost whether or not it is there, down to the debt of each limit: what has been used is charged.
pub fn charge(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> ChargeOutcome {
    let mut stands = standings(charges, slots, now);
    let mut uncovered = MicroTokens::default();
    for ((charge, slot), stand) in charges.iter().zip(slots).zip(stands.iter_mut()) {
        if charge.cost() > Cost::ZERO && !charge.needs_permit() {
            let (left, missing) = stand.charge(charge.limit().limit(), charge.cost(), now);
            *stand = left;
            *slot = BucketSlot { bucket: Some(left), dirty: true };
            uncovered = uncovered.max(missing);
        }
    }
    let outcome = Outcome { allowed: true, at: now, buckets: stands };
    ChargeOutcome { uncovered: uncovered.rounded_up(), outcome }
}

/// Gives every cost back, never above the capacity. A key without state still has none afterwards.
pub fn refund(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Outcome {
    refund_all(charges, slots, now)
}

/// Gives every cost back as [`refund`] does, unless the refund's marker has been spent: the two are one step. The marker
/// is the first of the charges ([`RefundId::mark`](crate::RefundId::mark)); the outcome leaves it out.
pub fn refund_once(marked: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> RefundOutcome {
    let (first, charges) = marked.split_at(1);
    let (first_slot, slots) = slots.split_at_mut(1);
    let given = spend_all(first, first_slot, now, false).allowed;
    let outcome = if given {
        refund_all(charges, slots, now)
    } else {
        Outcome { allowed: true, at: now, buckets: standings(charges, slots, now) }
    };
    RefundOutcome { given, outcome }
}

/// Makes what was reserved cost what it did in the end, if the reservation is open: less is given back, more is taken as by
/// [`charge`]. The marker and the count of the reservation come first ([`ReservationMarker::settle`]); the outcome leaves them out.
///
/// What was reserved in an earlier window of a quota is not given back to this one.
pub fn settle(marked: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> SettleOutcome {
    let (own, charges) = marked.split_at(ReservationMarker::BUCKETS);
    let (own_slots, slots) = slots.split_at_mut(ReservationMarker::BUCKETS);
    let mut stands = standings(charges, slots, now);
    let open = own_slots[0].bucket.filter(|&bucket| ReservationMarker::is_open(&own[0], bucket, now));
    let mut uncovered = MicroTokens::default();
    if let Some(marker) = open {
        own_slots[0] = BucketSlot { bucket: None, dirty: true };
        refund_all(&own[1..], &mut own_slots[1..], now);
        let actual = own[0].cost().get();
        for ((charge, slot), stand) in charges.iter().zip(slots).zip(stands.iter_mut()) {
            let (limit, reserved) = (charge.limit().limit(), charge.cost().get());
            let less = tokens(reserved.saturating_sub(actual));
            let more = tokens(actual.saturating_sub(reserved));
            if charge.needs_permit() {
                continue;
            }
            let is_of_this_window =
                limit.windows().is_none_or(|windows| marker.written_at() >= windows.window_at(now).start);
            if more > Cost::ZERO {
                let (left, missing) = stand.charge(limit, more, now);
                *stand = left;
                uncovered = uncovered.max(missing);
            } else if less > Cost::ZERO && slot.bucket.is_some() && is_of_this_window {
                *stand = stand.refund(limit, less, now);
            } else {
                continue;
            }
            *slot = BucketSlot { bucket: Some(*stand), dirty: true };
        }
    }
    let outcome = Outcome { allowed: true, at: now, buckets: stands };
    SettleOutcome { settled: open.is_some(), uncovered: uncovered.rounded_up(), outcome }
}

/// The difference of two costs.
fn tokens(difference: u32) -> Cost {
    Cost::new(difference.into()).unwrap_or(Cost::MAX)
}

fn refund_all(charges: &[Charge<'_>], slots: &mut [BucketSlot], now: Micros) -> Outcome {
    let mut stands = standings(charges, slots, now);
    for ((charge, slot), stand) in charges.iter().zip(slots).zip(stands.iter_mut()) {
        if slot.bucket.is_some() && charge.cost() > Cost::ZERO && !charge.needs_permit() {
            *stand = stand.refund(charge.limit().limit(), charge.cost(), now);
            *slot = BucketSlot { bucket: Some(*stand), dirty: true };
        }
    }
    Outcome { allowed: true, at: now, buckets: stands }
}

fn covered(charges: &[Charge<'_>], stands: &[Bucket], now: Micros) -> bool {
    let covers = |(charge, bucket): (&Charge<'_>, &Bucket)| {
        charge.cost().is_covered_by(bucket.available(charge.limit().limit(), now))
    };
    charges.iter().zip(stands).all(covers)
}

/// Each bucket at `now`, before anything is spent.
fn standings(charges: &[Charge<'_>], slots: &[BucketSlot], now: Micros) -> OneOrMany<Bucket> {
    debug_assert_eq!(charges.len(), slots.len(), "one slot per charge");
    let stand = |(charge, slot): (&Charge<'_>, &BucketSlot)| match slot.bucket {
        Some(bucket) => bucket.rebased(charge.limit().limit(), now),
        None => Bucket::full(charge.limit().limit(), now),
    };
    charges.iter().zip(slots).map(stand).collect()
}
