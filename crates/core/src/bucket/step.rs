//! One atomic step over the buckets of a chain, as a pure function: a store reads the buckets, runs the step and writes the dirty
//! ones back. The script of `spile-redis` implements the same.

use crate::{
    Amount, Bucket, Charge, Charges, Cost, MARKER_TIME, Micros, OneOrMany, Operation, PermitStep, Reply,
    ReservationId, SpendTime, Verdict,
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

    /// The marker in this slot, unless its time is over.
    fn marker(&self, now: Micros) -> Option<Bucket> {
        self.bucket.filter(|marker| now < marker.moment())
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
        Operation::Refund { spent, once: None } | Operation::Permit(_, PermitStep::Release(spent)) => {
            refund(charges, *spent, slots, now)
        }
        Operation::Refund { spent, once: Some(_) } => refund_once(charges, *spent, slots, now),
        Operation::Reserve(id) => reserve(charges, *id, slots, now),
        Operation::Settle(_, costs) => settle(charges, costs, slots, now),
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
    spend_if(true, charges, slots, now, takes_places)
}

fn spend_if(
    may: bool,
    charges: &[Charge<'_>],
    slots: &mut [BucketSlot],
    now: Micros,
    takes_places: bool,
) -> Reply {
    let mut buckets = current(charges, slots, now);
    let allowed = may && are_covered(charges, &buckets, now);
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
pub fn refund(charges: &[Charge<'_>], spent: SpendTime, slots: &mut [BucketSlot], now: Micros) -> Reply {
    let mut buckets = current(charges, slots, now);
    for ((charge, slot), bucket) in charges.iter().zip(slots).zip(buckets.iter_mut()) {
        if let Some(refunded) = refunded(charge, charge.cost(), spent, *slot, *bucket, now) {
            *bucket = refunded;
            slot.write(refunded);
        }
    }
    Reply::new(Verdict::Done, now, buckets)
}

/// The bucket with `cost` put back. `None` if there is nothing to return it to.
fn refunded(
    charge: &Charge<'_>,
    cost: Cost,
    spent: SpendTime,
    slot: BucketSlot,
    bucket: Bucket,
    now: Micros,
) -> Option<Bucket> {
    let limit = charge.limit().limit();
    let is_returned = slot.bucket.is_some()
        && cost > Cost::ZERO
        && !charge.needs_permit()
        && bucket.holds_usage_of(limit, spent, now);
    is_returned.then(|| bucket.refund(limit, cost, now))
}

/// Refunds unless the marker, the first charge, says that it was done before. Both happen in one step.
fn refund_once(all: &Charges<'_>, spent: SpendTime, slots: &mut [BucketSlot], now: Micros) -> Reply {
    let (own, slots) = slots.split_at_mut(1);
    let marker = &mut own[0];
    let charges = &all[1..];
    if marker.marker(now).is_some() {
        return Reply::new(Verdict::Before, now, current(charges, slots, now));
    }
    marker.write(Bucket::new(Amount::TOKEN, now + MARKER_TIME));
    refund(charges, spent, slots, now)
}

/// Spends, and writes the marker, which is the first charge.
fn reserve(all: &Charges<'_>, id: ReservationId, slots: &mut [BucketSlot], now: Micros) -> Reply {
    let (own, slots) = slots.split_at_mut(1);
    let marker = &mut own[0];
    let charges = &all[1..];
    let is_new = marker.marker(now).is_none();
    let reply = spend_if(is_new, charges, slots, now, false);
    if reply.verdict == Verdict::Done {
        let time_to_settle = Amount::from_micro(id.ttl().as_micros() as i64);
        marker.write(Bucket::new(time_to_settle, now + id.ttl() + MARKER_TIME));
    }
    reply
}

/// Settles an open reservation at these costs: returns the rest, or charges the shortfall. The first charges are the marker, and one for
/// the amount of each charge.
fn settle(all: &Charges<'_>, costs: &[Cost], slots: &mut [BucketSlot], now: Micros) -> Reply {
    let (own, slots) = slots.split_at_mut(1);
    let marker = &mut own[0];
    let (amounts, slots) = slots.split_at_mut(costs.len());
    let charges = &all[1 + costs.len()..];
    let mut buckets = current(charges, slots, now);
    let unsettled = |verdict, buckets| Reply::new(verdict, now, buckets);
    let Some(open) = marker.marker(now) else { return unsettled(Verdict::Unknown, buckets) };
    if open.amount() == Amount::ZERO {
        let amount = |slot: &BucketSlot| slot.bucket.map_or(Amount::ZERO, Bucket::amount);
        return Reply {
            settled: amounts.iter().map(amount).collect(),
            ..unsettled(Verdict::Before, buckets)
        };
    }
    let ends_us = open.moment().get().saturating_sub(MARKER_TIME.as_micros() as u64);
    if now.get() >= ends_us {
        return unsettled(Verdict::Expired, buckets);
    }
    let spent = SpendTime::At(Micros::new(ends_us.saturating_add_signed(-open.amount().micro())));
    marker.write(Bucket::new(Amount::ZERO, open.moment()));
    let mut uncovered = Amount::ZERO;
    for ((((charge, cost), slot), bucket), amount) in
        charges.iter().zip(costs).zip(slots).zip(buckets.iter_mut()).zip(amounts)
    {
        amount.write(Bucket::new(cost.amount(), open.moment()));
        let more = Cost::saturating(cost.amount().above(charge.cost().amount()));
        let less = Cost::saturating(charge.cost().amount().above(cost.amount()));
        if more > Cost::ZERO && !charge.needs_permit() {
            let (left, missing) = bucket.charge(charge.limit().limit(), more, now);
            uncovered = uncovered.max(missing);
            *bucket = left;
            slot.write(left);
        } else if let Some(refunded) = refunded(charge, less, spent, *slot, *bucket, now) {
            *bucket = refunded;
            slot.write(refunded);
        }
    }
    let settled = costs.iter().map(|cost| cost.amount()).collect();
    Reply { amount: uncovered, settled, ..Reply::new(Verdict::Done, now, buckets) }
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
