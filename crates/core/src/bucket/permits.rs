//! The permits of a concurrency, and one atomic step over those of a chain, as a pure function. `spend.lua` says the same in Lua.

use std::time::Duration;

use super::step::{acquire, peek, refund};
use crate::{
    Bucket, BucketSlot, Charge, Charges, HeldPermit, Limit, MicroTokens, Micros, Outcome, PermitId,
    PermitStep,
};

/// How far beyond its hold time a permit may end before it is shortened. Less is jitter of the clock.
const JITTER: Duration = Duration::from_secs(1);

/// The permits of one key under one concurrency, as a store keeps them. Those whose time is up do not count, and stay until a
/// place is asked for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PermitSet(Vec<HeldPermit>);

impl PermitSet {
    /// The free places, as a bucket that does not refill. For the slot of a charge that takes a permit.
    pub fn places(&self, limit: &Limit, now: Micros) -> Bucket {
        Bucket::places(limit, u32::try_from(self.held(now).count()).unwrap_or(u32::MAX), now)
    }

    /// The permits that are held, the first to end first.
    pub fn holders(&self, now: Micros) -> Vec<HeldPermit> {
        let mut holders: Vec<_> = self.held(now).cloned().collect();
        holders.sort_by_key(|permit| (permit.until, permit.id.clone()));
        holders
    }

    /// Also those whose time is up.
    pub fn all(&self) -> &[HeldPermit] {
        &self.0
    }

    fn held(&self, now: Micros) -> impl Iterator<Item = &HeldPermit> {
        self.0.iter().filter(move |permit| permit.until > now)
    }

    fn is_held(&self, id: &PermitId, now: Micros) -> bool {
        self.held(now).any(|permit| permit.id == *id)
    }

    /// The places that this permit could take, with its own if it is held: it keeps that also if there are fewer places than
    /// before.
    fn places_for(&mut self, id: &PermitId, limit: &Limit, now: Micros) -> Bucket {
        self.0.retain(|permit| permit.until > now);
        let (places, latest) = (self.places(limit, now), now + limit.fill_time());
        if places.held().get() == 0 {
            // If the clock has stepped back, permits would be held far beyond their time.
            for permit in self.0.iter_mut().filter(|permit| permit.until > latest + JITTER) {
                permit.until = latest;
            }
        }
        let own = if self.is_held(id, now) { MicroTokens::PER_TOKEN } else { 0 };
        Bucket::new(MicroTokens::new(places.held().get() + own), now)
    }

    fn hold(&mut self, id: &PermitId, until: Micros) {
        self.0.retain(|permit| permit.id != *id);
        self.0.push(HeldPermit { id: id.clone(), until });
    }
}

/// Takes, keeps or ends a permit of each concurrency, together with what the step does to the other charges. There is a slot and
/// a set for each charge; sets of charges that take no permit are empty. The store writes back what is dirty, and all sets.
pub fn permit(
    charges: &Charges<'_>,
    id: &PermitId,
    step: PermitStep,
    slots: &mut [BucketSlot],
    sets: &mut [PermitSet],
    now: Micros,
) -> Outcome {
    let takes = matches!(step, PermitStep::Acquire | PermitStep::Retake);
    for (charge, slot, set) in concerned(charges, slots, sets) {
        let limit = charge.limit().limit();
        // What is renewed or released is not counted.
        let places = if takes { set.places_for(id, limit, now) } else { Bucket::full(limit, now) };
        *slot = BucketSlot::read(Some(places));
    }
    let outcome = match step {
        PermitStep::Acquire | PermitStep::Retake => acquire(charges, slots, now),
        PermitStep::Renew => {
            let allowed = concerned(charges, slots, sets).all(|(_, _, set)| set.is_held(id, now));
            Outcome { allowed, ..peek(charges, slots, now) }
        }
        PermitStep::Release => {
            let allowed = concerned(charges, slots, sets).any(|(_, _, set)| set.is_held(id, now));
            Outcome { allowed, ..refund(charges, slots, now) }
        }
    };
    for (charge, _, set) in concerned(charges, slots, sets) {
        if step == PermitStep::Release && set.is_held(id, now) {
            set.0.retain(|permit| permit.id != *id);
        } else if step != PermitStep::Release && outcome.allowed {
            set.hold(id, now + charge.limit().limit().fill_time());
        }
    }
    outcome
}

/// The charges that take a permit, with their slots and sets.
fn concerned<'a, 'k>(
    charges: &'a Charges<'k>,
    slots: &'a mut [BucketSlot],
    sets: &'a mut [PermitSet],
) -> impl Iterator<Item = (&'a Charge<'k>, &'a mut BucketSlot, &'a mut PermitSet)> {
    let all = charges.iter().zip(slots).zip(sets).map(|((charge, slot), set)| (charge, slot, set));
    all.filter(|(charge, ..)| charge.needs_permit())
}
