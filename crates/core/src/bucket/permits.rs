//! The permits of a concurrency, and one atomic permit step over a chain, as a pure function. The script of `spile-redis` implements the same.

use std::time::Duration;

use super::step::{acquire, peek, refund};
use crate::{
    Amount, Bucket, BucketSlot, Charge, Charges, HeldPermit, Limit, Micros, PermitId, PermitStep, Reply,
    Verdict,
};

/// How far beyond its hold time a permit may end before it is shortened. A smaller excess is jitter of the clock.
const JITTER: Duration = Duration::from_secs(1);

/// The permits of one key under one concurrency, as a store keeps them. Expired permits do not count, and are removed when a place
/// is next requested.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PermitSet(Vec<HeldPermit>);

impl PermitSet {
    /// The free places, as a bucket that does not refill. For the slot of a charge that takes a permit.
    pub fn places(&self, limit: &Limit, now: Micros) -> Bucket {
        Bucket::places(limit, u32::try_from(self.held(now).count()).unwrap_or(u32::MAX), now)
    }

    /// The permits that are held, ordered by when they end.
    pub fn holders(&self, now: Micros) -> Vec<HeldPermit> {
        let mut holders: Vec<_> = self.held(now).cloned().collect();
        holders.sort_by_key(|permit| (permit.until, permit.id.clone()));
        holders
    }

    /// All permits, including expired ones. A store that saves them restores the set by collecting them.
    pub fn all(&self) -> &[HeldPermit] {
        &self.0
    }

    fn held(&self, now: Micros) -> impl Iterator<Item = &HeldPermit> {
        self.0.iter().filter(move |permit| permit.until > now)
    }

    fn is_held(&self, id: &PermitId, now: Micros) -> bool {
        self.held(now).any(|permit| permit.id == *id)
    }

    /// The places available to this permit, including its own if it is held: it keeps that even if the limit now has fewer places.
    fn places_for(&mut self, id: &PermitId, limit: &Limit, now: Micros) -> Bucket {
        self.0.retain(|permit| permit.until > now);
        let (places, latest) = (self.places(limit, now), now + limit.fill_time());
        if places.amount() == Amount::ZERO {
            // After the clock has stepped back, permits would be held far beyond their hold time.
            for permit in self.0.iter_mut().filter(|permit| permit.until > latest + JITTER) {
                permit.until = latest;
            }
        }
        let own = if self.is_held(id, now) { Amount::TOKEN } else { Amount::ZERO };
        Bucket::new(places.amount() + own, now)
    }

    fn hold(&mut self, id: &PermitId, until: Micros) {
        self.0.retain(|permit| permit.id != *id);
        self.0.push(HeldPermit { id: id.clone(), until });
    }
}

impl FromIterator<HeldPermit> for PermitSet {
    fn from_iter<I: IntoIterator<Item = HeldPermit>>(permits: I) -> Self {
        Self(permits.into_iter().collect())
    }
}

/// Takes, keeps or releases a permit of each concurrency, together with the step's effect on the other charges. `slots` and `sets`
/// have one entry per charge; the sets of charges that take no permit are empty. The store writes back the dirty slots and all
/// sets.
pub fn permit(
    charges: &Charges<'_>,
    id: &PermitId,
    step: PermitStep,
    slots: &mut [BucketSlot],
    sets: &mut [PermitSet],
    now: Micros,
) -> Reply {
    let takes = matches!(step, PermitStep::Acquire | PermitStep::Retake);
    for (charge, slot, set) in concerned(charges, slots, sets) {
        let limit = charge.limit().limit();
        // Renew and release do not count places; the reply reports them as free.
        let places = if takes { set.places_for(id, limit, now) } else { Bucket::full(limit, now) };
        *slot = BucketSlot::read(Some(places));
    }
    let reply = match step {
        PermitStep::Acquire | PermitStep::Retake => acquire(charges, slots, now),
        PermitStep::Renew => {
            let is_held = concerned(charges, slots, sets).all(|(_, _, set)| set.is_held(id, now));
            Reply { verdict: Verdict::done_if(is_held), ..peek(charges, slots, now) }
        }
        PermitStep::Release(spent) => {
            // A permit that is not held refunds nothing: it was released before, or its acquisition never ran.
            let is_held = concerned(charges, slots, sets).any(|(_, _, set)| set.is_held(id, now));
            let reply = if is_held { refund(charges, spent, slots, now) } else { peek(charges, slots, now) };
            Reply { verdict: Verdict::done_if(is_held), ..reply }
        }
    };
    for (charge, _, set) in concerned(charges, slots, sets) {
        if matches!(step, PermitStep::Release(_)) {
            set.0.retain(|permit| permit.id != *id || permit.until <= now);
        } else if reply.verdict == Verdict::Done {
            set.hold(id, now + charge.limit().limit().fill_time());
        }
    }
    reply
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
