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
/// acquisition whose permit is already held. [`permit`](crate::permit) fills them, and records or ends the permit according to the
/// verdict.
pub fn decide(
    operation: &Operation<'_>,
    charges: &Charges<'_>,
    slots: &mut [BucketSlot],
    now: Micros,
) -> Reply {
    let (markers, slots) = slots.split_at_mut(operation.marker_count());
    let step = ChainStep::new(&charges[markers.len()..], slots, now);
    match *operation {
        Operation::Spend => step.spend(true, false),
        Operation::Peek | Operation::Permit(_, PermitStep::Renew) => {
            let is_covered = step.is_covered();
            step.reply(Verdict::done_if(is_covered))
        }
        Operation::SpendUpTo => step.spend_up_to(),
        Operation::Charge => step.charge(),
        Operation::Refund { once: Some(_), .. } if markers[0].marker(now).is_some() => {
            step.reply(Verdict::Before)
        }
        Operation::Refund { spent, .. } | Operation::Permit(_, PermitStep::Release(spent)) => {
            if let [marker] = markers {
                marker.write(Bucket::new(Amount::TOKEN, now + MARKER_TIME));
            }
            step.refund(spent)
        }
        Operation::Reserve(id) => step.reserve(id, &mut markers[0]),
        Operation::Settle(_, costs) => step.settle(costs, markers),
        Operation::Permit(_, PermitStep::Acquire | PermitStep::Retake) => step.spend(true, true),
        Operation::Reset => {
            step.slots.fill(BucketSlot { bucket: None, dirty: true });
            ChainStep::new(step.charges, step.slots, now).reply(Verdict::Done)
        }
    }
}

/// The charges of a step without markers, and their buckets.
struct ChainStep<'a, 'k> {
    charges: &'a [Charge<'k>],
    slots: &'a mut [BucketSlot],
    /// Each bucket as of `now`.
    buckets: OneOrMany<Bucket>,
    now: Micros,
}

impl<'a, 'k> ChainStep<'a, 'k> {
    fn new(charges: &'a [Charge<'k>], slots: &'a mut [BucketSlot], now: Micros) -> Self {
        debug_assert_eq!(charges.len(), slots.len(), "one slot per charge");
        let current = |(charge, slot): (&Charge<'_>, &BucketSlot)| match slot.bucket {
            Some(bucket) => bucket.rebased(charge.limit().limit(), now),
            None => Bucket::full(charge.limit().limit(), now),
        };
        let buckets = charges.iter().zip(&*slots).map(current).collect();
        Self { charges, slots, buckets, now }
    }

    fn reply(self, verdict: Verdict) -> Reply {
        Reply::new(verdict, self.now, self.buckets)
    }

    fn is_covered(&self) -> bool {
        self.charges.iter().zip(&self.buckets).all(|(charge, bucket)| charge.is_covered_by(*bucket, self.now))
    }

    /// Writes the buckets for which `change` returns another state. It is called with the position of each charge.
    fn change(&mut self, mut change: impl FnMut(usize, ChargeState<'_, 'k>) -> Option<Bucket>) {
        let now = self.now;
        let slots = self.charges.iter().zip(&mut *self.slots).zip(self.buckets.iter_mut());
        for (index, ((charge, slot), bucket)) in slots.enumerate() {
            let link = ChargeState { charge, read: slot.bucket, bucket: *bucket, now };
            if let Some(changed) = change(index, link) {
                *bucket = changed;
                slot.write(changed);
            }
        }
    }

    /// Spends every charge, or none of them. Takes a place of each concurrency only if it is acquired.
    fn spend(mut self, may: bool, acquires: bool) -> Reply {
        let allowed = may && self.is_covered();
        self.spend_each(acquires, |charge| if allowed { charge.cost() } else { Cost::ZERO });
        self.reply(Verdict::done_if(allowed))
    }

    /// Spends as much as every bucket of the chain has, up to the smallest cost, in multiples of the largest quantum.
    fn spend_up_to(mut self) -> Reply {
        let most = |(charge, bucket): (&Charge<'_>, &Bucket)| {
            bucket.available(charge.limit().limit(), self.now).min(charge.cost().amount())
        };
        let most = self.charges.iter().zip(&self.buckets).map(most).min().unwrap_or_default();
        let quantum = self.charges.iter().map(|charge| charge.limit().limit().quantum()).max();
        let granted = Cost::saturating(quantum.map_or(most, |quantum| most.floored_to(quantum)));
        self.spend_each(false, |_| granted);
        Reply { amount: granted.amount(), ..self.reply(Verdict::done_if(granted > Cost::ZERO)) }
    }

    /// Spends these costs, which the buckets cover.
    ///
    /// A denial writes no tokens. It does write a bucket that is rebased because it lies far ahead of the clock: its key would
    /// otherwise stay locked until the clock catches up.
    fn spend_each(&mut self, acquires: bool, cost: impl Fn(&Charge<'_>) -> Cost) {
        self.change(|_, ChargeState { charge, read, bucket, now }| {
            let cost = cost(charge);
            if charge.needs_permit() && !acquires {
                None
            } else if cost > Cost::ZERO {
                bucket.spend(charge.limit().limit(), cost, now)
            } else {
                read.filter(|read| *read != bucket).map(|_| bucket)
            }
        });
    }

    /// Takes every cost whether or not it is available, down to the debt of each limit.
    fn charge(mut self) -> Reply {
        let mut uncovered = Amount::ZERO;
        self.change(|_, link| link.charged(link.charge.cost(), &mut uncovered));
        Reply { amount: uncovered, ..self.reply(Verdict::Done) }
    }

    /// Returns every cost, never above the capacity. A key without state still has none afterwards.
    fn refund(mut self, spent: SpendTime) -> Reply {
        self.change(|_, link| link.refunded(link.charge.cost(), spent));
        self.reply(Verdict::Done)
    }

    /// Spends, and writes the marker.
    fn reserve(self, id: ReservationId, marker: &mut BucketSlot) -> Reply {
        let now = self.now;
        let reply = self.spend(marker.marker(now).is_none(), false);
        if reply.verdict == Verdict::Done {
            let time_to_settle = Amount::from_micro(id.ttl().as_micros() as i64);
            marker.write(Bucket::new(time_to_settle, now + id.ttl() + MARKER_TIME));
        }
        reply
    }

    /// Settles an open reservation at these costs: returns the rest, or charges the shortfall. Its markers are one for the
    /// reservation, and one for the amount of each charge.
    fn settle(mut self, costs: &[Cost], markers: &mut [BucketSlot]) -> Reply {
        let (now, (marker, amounts)) =
            (self.now, markers.split_first_mut().expect("a settlement has markers"));
        let Some(open) = marker.marker(now) else { return self.reply(Verdict::Unknown) };
        if open.amount() == Amount::ZERO {
            let amount = |slot: &BucketSlot| slot.bucket.map_or(Amount::ZERO, Bucket::amount);
            return Reply { settled: amounts.iter().map(amount).collect(), ..self.reply(Verdict::Before) };
        }
        let ends_us = open.moment().get().saturating_sub(MARKER_TIME.as_micros() as u64);
        if now.get() >= ends_us {
            return self.reply(Verdict::Expired);
        }
        let spent = SpendTime::At(Micros::new(ends_us.saturating_add_signed(-open.amount().micro())));
        marker.write(Bucket::new(Amount::ZERO, open.moment()));
        let mut uncovered = Amount::ZERO;
        self.change(|index, link| {
            let (actual, reserved) = (costs[index].amount(), link.charge.cost().amount());
            amounts[index].write(Bucket::new(actual, open.moment()));
            let [more, less] = [actual.above(reserved), reserved.above(actual)].map(Cost::saturating);
            link.charged(more, &mut uncovered).or_else(|| link.refunded(less, spent))
        });
        let settled = costs.iter().map(|cost| cost.amount()).collect();
        Reply { amount: uncovered, settled, ..self.reply(Verdict::Done) }
    }
}

/// A charge of the chain, its bucket as it was read, and as of now.
struct ChargeState<'a, 'k> {
    charge: &'a Charge<'k>,
    read: Option<Bucket>,
    bucket: Bucket,
    now: Micros,
}

impl ChargeState<'_, '_> {
    /// The bucket without `cost`. `None` if nothing is charged. Raises `uncovered` to the amount that exceeds the debt.
    fn charged(&self, cost: Cost, uncovered: &mut Amount) -> Option<Bucket> {
        (cost > Cost::ZERO && !self.charge.needs_permit()).then(|| {
            let (left, missing) = self.bucket.charge(self.charge.limit().limit(), cost, self.now);
            *uncovered = missing.max(*uncovered);
            left
        })
    }

    /// The bucket with `cost` put back. `None` if there is nothing to return it to.
    fn refunded(&self, cost: Cost, spent: SpendTime) -> Option<Bucket> {
        let (limit, now) = (self.charge.limit().limit(), self.now);
        let is_returned = self.read.is_some()
            && cost > Cost::ZERO
            && !self.charge.needs_permit()
            && self.bucket.holds_usage_of(limit, spent, now);
        is_returned.then(|| self.bucket.refund(limit, cost, now))
    }
}
