//! One atomic step over the buckets of a chain, as a pure function: a store reads the buckets, runs the step and writes the dirty
//! ones back. The script of `spile-redis` implements the same.

use crate::{
    Amount, Bucket, Charge, Charges, Cost, Micros, OneOrMany, Operation, PermitStep, Reply,
    ReservationMarker, Verdict,
};

/// A bucket during a step: as the store read it, then as the store has to write it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BucketSlot {
    /// The bucket in the store. `None` if the key has no state; if the slot is dirty, the store must remove the state.
    pub bucket: Option<Bucket>,
    /// True if the store must write [`bucket`](Self::bucket) back.
    pub dirty: bool,
}

impl BucketSlot {
    /// A slot as read.
    pub const fn read(bucket: Option<Bucket>) -> Self {
        Self { bucket, dirty: false }
    }

    const fn write(&mut self, bucket: Bucket) {
        *self = Self { bucket: Some(bucket), dirty: true };
    }
}

/// Runs an operation on the buckets of its charges, [with markers](Operation::with_markers) if it has some. The reply leaves the
/// markers out.
///
/// The store keeps the permits themselves: slots of concurrencies hold the free [places](Bucket::places), plus one for an
/// acquisition whose permit is already held, and the store records or ends the permit according to the verdict.
pub fn decide(
    operation: &Operation<'_>,
    charges: &Charges<'_>,
    slots: &mut [BucketSlot],
    now: Micros,
) -> Reply {
    match operation {
        Operation::Spend => spend_all(charges, slots, now, false),
        Operation::Peek | Operation::Permit(_, PermitStep::Renew) => peek(charges, slots, now),
        Operation::SpendUpTo => spend_up_to(charges, slots, now),
        Operation::Charge => charge(charges, slots, now),
        Operation::Refund(None) | Operation::Permit(_, PermitStep::Release) => refund(charges, slots, now),
        Operation::Refund(Some(_)) => refund_once(charges, slots, now),
        Operation::Settle(..) => settle(charges, slots, now),
        Operation::Permit(_, PermitStep::Acquire | PermitStep::Retake) => acquire(charges, slots, now),
        Operation::Reset => {
            slots.fill(BucketSlot { bucket: None, dirty: true });
            Reply::new(Verdict::Done, now, current(charges, slots, now))
        }
    }
}

/// Spends every charge and takes a place of each concurrency of the chain, or does nothing.
pub fn acquire(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Reply {
    spend_all(charges, slots, now, true)
}

/// Spends every charge, or none of them.
///
/// A denial writes no tokens. It does write a bucket that is rebased because it lies far ahead of the clock: its key would
/// otherwise stay locked until the clock catches up.
fn spend_all(charges: &[Charge<'_>], slots: &mut [BucketSlot], now: Micros, takes_places: bool) -> Reply {
    let mut buckets = current(charges, slots, now);
    let allowed = are_covered(charges, &buckets, now);
    for ((charge, slot), bucket) in charges.iter().zip(slots).zip(buckets.iter_mut()) {
        if charge.needs_permit() && !takes_places {
            continue;
        }
        let is_rebased = slot.bucket.is_some_and(|read| read != *bucket);
        let spends = allowed && charge.cost() > Cost::ZERO;
        if spends && let Some(spent) = bucket.spend(charge.limit().limit(), charge.cost(), now) {
            *bucket = spent;
        }
        if spends || is_rebased {
            slot.write(*bucket);
        }
    }
    Reply::new(Verdict::done_if(allowed), now, buckets)
}

/// Answers as a spend would, and writes nothing. The buckets are shown unspent.
pub fn peek(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Reply {
    let buckets = current(charges, slots, now);
    Reply::new(Verdict::done_if(are_covered(charges, &buckets, now)), now, buckets)
}

/// Spends as much as every bucket of the chain has, up to the smallest cost, in multiples of the largest quantum.
fn spend_up_to(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Reply {
    let mut buckets = current(charges, slots, now);
    let most = |(charge, bucket): (&Charge<'_>, &Bucket)| {
        bucket.available(charge.limit().limit(), now).min(charge.cost().amount())
    };
    let most = charges.iter().zip(buckets.iter()).map(most).min().unwrap_or_default();
    let quantum = charges.iter().map(|charge| charge.limit().limit().quantum()).max();
    let granted = Cost::saturating(quantum.map_or(most, |quantum| most.floored_to(quantum)));
    for ((charge, slot), bucket) in charges.iter().zip(slots).zip(buckets.iter_mut()) {
        if charge.needs_permit() {
            continue;
        }
        let is_rebased = slot.bucket.is_some_and(|read| read != *bucket);
        if granted > Cost::ZERO
            && let Some(spent) = bucket.spend(charge.limit().limit(), granted, now)
        {
            *bucket = spent;
        }
        if granted > Cost::ZERO || is_rebased {
            slot.write(*bucket);
        }
    }
    Reply { amount: granted.amount(), ..Reply::new(Verdict::done_if(granted > Cost::ZERO), now, buckets) }
}

/// Takes every cost whether or not it is available, down to the debt of each limit.
fn charge(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Reply {
    let mut buckets = current(charges, slots, now);
    let mut uncovered = Amount::ZERO;
    for ((charge, slot), bucket) in charges.iter().zip(slots).zip(buckets.iter_mut()) {
        if charge.cost() > Cost::ZERO && !charge.needs_permit() {
            let (left, missing) = bucket.charge(charge.limit().limit(), charge.cost(), now);
            *bucket = left;
            slot.write(left);
            uncovered = uncovered.max(missing);
        }
    }
    Reply { amount: uncovered, ..Reply::new(Verdict::Done, now, buckets) }
}

/// Returns every cost, never above the capacity. A key without state still has none afterwards.
pub fn refund(charges: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Reply {
    refund_all(charges, slots, now)
}

/// Refunds unless the refund's marker, the first charge, has been spent already. Both happen in one step.
fn refund_once(marked: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Reply {
    let (first, charges) = marked.split_at(1);
    let (first_slot, slots) = slots.split_at_mut(1);
    match spend_all(first, first_slot, now, false).verdict {
        Verdict::Done => refund_all(charges, slots, now),
        _ => Reply::new(Verdict::Before, now, current(charges, slots, now)),
    }
}

/// Settles an open reservation at its actual cost: refunds the rest, or charges the shortfall. The first two charges are the
/// marker, at the actual cost, and the count of open reservations.
///
/// A quota gets nothing back if the reservation was made in an earlier window.
fn settle(marked: &Charges<'_>, slots: &mut [BucketSlot], now: Micros) -> Reply {
    let (own, charges) = marked.split_at(ReservationMarker::BUCKETS);
    let (own_slots, slots) = slots.split_at_mut(ReservationMarker::BUCKETS);
    let mut buckets = current(charges, slots, now);
    let open = own_slots[0].bucket.filter(|&bucket| ReservationMarker::is_open(&own[0], bucket, now));
    let Some(reservation) = open else { return Reply::new(Verdict::Before, now, buckets) };
    own_slots[0] = BucketSlot { bucket: None, dirty: true };
    refund_all(&own[1..], &mut own_slots[1..], now);
    let mut uncovered = Amount::ZERO;
    let actual = own[0].cost().amount();
    for ((charge, slot), bucket) in charges.iter().zip(slots).zip(buckets.iter_mut()) {
        let (limit, reserved) = (charge.limit().limit(), charge.cost().amount());
        let less = Cost::saturating(reserved.above(actual));
        let more = Cost::saturating(actual.above(reserved));
        if charge.needs_permit() {
            continue;
        }
        let is_of_this_window =
            limit.windows().is_none_or(|windows| reservation.moment() >= windows.window_at(now).start);
        if more > Cost::ZERO {
            let (left, missing) = bucket.charge(limit, more, now);
            *bucket = left;
            uncovered = uncovered.max(missing);
        } else if less > Cost::ZERO && slot.bucket.is_some() && is_of_this_window {
            *bucket = bucket.refund(limit, less, now);
        } else {
            continue;
        }
        slot.write(*bucket);
    }
    Reply { amount: uncovered, ..Reply::new(Verdict::Done, now, buckets) }
}

fn refund_all(charges: &[Charge<'_>], slots: &mut [BucketSlot], now: Micros) -> Reply {
    let mut buckets = current(charges, slots, now);
    for ((charge, slot), bucket) in charges.iter().zip(slots).zip(buckets.iter_mut()) {
        if slot.bucket.is_some() && charge.cost() > Cost::ZERO && !charge.needs_permit() {
            *bucket = bucket.refund(charge.limit().limit(), charge.cost(), now);
            slot.write(*bucket);
        }
    }
    Reply::new(Verdict::Done, now, buckets)
}

fn are_covered(charges: &[Charge<'_>], buckets: &[Bucket], now: Micros) -> bool {
    charges.iter().zip(buckets).all(|(charge, bucket)| charge.is_covered_by(*bucket, now))
}

/// Each bucket as of `now`, before anything is spent.
fn current(charges: &[Charge<'_>], slots: &[BucketSlot], now: Micros) -> OneOrMany<Bucket> {
    debug_assert_eq!(charges.len(), slots.len(), "one slot per charge");
    let bucket = |(charge, slot): (&Charge<'_>, &BucketSlot)| match slot.bucket {
        Some(bucket) => bucket.rebased(charge.limit().limit(), now),
        None => Bucket::full(charge.limit().limit(), now),
    };
    charges.iter().zip(slots).map(bucket).collect()
}
