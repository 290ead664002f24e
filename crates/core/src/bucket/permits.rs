//! The permits of a concurrency, and one atomic permit step over a chain, as a pure function. The script of `spile-redis` implements the same.

use std::time::Duration;

use crate::{
    Amount, Bucket, BucketSlot, Charges, HeldPermit, Limit, Micros, Operation, PermitId, PermitStep, Reply,
    Verdict, decide,
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
}

impl FromIterator<HeldPermit> for PermitSet {
    fn from_iter<I: IntoIterator<Item = HeldPermit>>(permits: I) -> Self {
        Self(permits.into_iter().collect())
    }
}

/// The permits under the limits of a chain. Each method concerns the charge at a position of the chain, which is a concurrency.
pub trait ChainPermits {
    /// The places available to this permit, including its own if it is held: it keeps that even if the limit now has fewer places.
    fn places_for(&mut self, index: usize, id: &PermitId, limit: &Limit, now: Micros) -> Amount;

    /// True if the permit is held.
    fn is_held(&mut self, index: usize, id: &PermitId, now: Micros) -> bool;

    /// Records the permit, or extends it.
    fn hold(&mut self, index: usize, id: &PermitId, time: Duration, now: Micros);

    /// Ends the permit if it is held.
    fn release(&mut self, index: usize, id: &PermitId, now: Micros);
}

/// One set per charge. Those of charges that take no permit are empty.
impl ChainPermits for [PermitSet] {
    fn places_for(&mut self, index: usize, id: &PermitId, limit: &Limit, now: Micros) -> Amount {
        self[index].0.retain(|permit| permit.until > now);
        let places = self[index].places(limit, now).amount();
        if places == Amount::ZERO {
            // After the clock has stepped back, permits would be held far beyond their hold time.
            for permit in &mut self[index].0 {
                let latest = now + permit.id.longest_hold(limit.fill_time());
                permit.until = if permit.until > latest + JITTER { latest } else { permit.until };
            }
        }
        places + if self.is_held(index, id, now) { Amount::TOKEN } else { Amount::ZERO }
    }

    fn is_held(&mut self, index: usize, id: &PermitId, now: Micros) -> bool {
        self[index].held(now).any(|permit| permit.id == *id)
    }

    fn hold(&mut self, index: usize, id: &PermitId, time: Duration, now: Micros) {
        self[index].0.retain(|permit| permit.id != *id);
        self[index].0.push(HeldPermit { id: id.clone(), until: now + time });
    }

    fn release(&mut self, index: usize, id: &PermitId, now: Micros) {
        self[index].0.retain(|permit| permit.id != *id || permit.until <= now);
    }
}

/// Takes, keeps or releases a permit of each concurrency, together with the step's effect on the other charges. `slots` has one entry
/// per charge. The store writes back the dirty slots of the charges that take no permit.
pub fn permit(
    charges: &Charges<'_>,
    id: &PermitId,
    step: PermitStep,
    slots: &mut [BucketSlot],
    permits: &mut (impl ChainPermits + ?Sized),
    now: Micros,
) -> Reply {
    let concurrencies = || charges.iter().enumerate().filter(|(_, charge)| charge.needs_permit());
    for (index, charge) in concurrencies() {
        let limit = charge.limit().limit();
        let places = match step {
            PermitStep::Acquire | PermitStep::Retake => permits.places_for(index, id, limit, now),
            // Renew and release do not count places; the reply reports them as free.
            PermitStep::Renew | PermitStep::Release(_) => limit.capacity(),
        };
        slots[index] = BucketSlot::read(Some(Bucket::new(places, now)));
    }
    let mut is_held = concurrencies().map(|(index, _)| permits.is_held(index, id, now));
    let reply = match step {
        PermitStep::Renew => {
            let verdict = Verdict::done_if(is_held.all(|held| held));
            Reply { verdict, ..decide(&Operation::Peek, charges, slots, now) }
        }
        // A permit that is not held refunds nothing: it was released before, or its acquisition never ran.
        PermitStep::Release(_) if !is_held.any(|held| held) => {
            Reply { verdict: Verdict::Denied, ..decide(&Operation::Peek, charges, slots, now) }
        }
        _ => decide(&Operation::Permit(id, step), charges, slots, now),
    };
    for (index, charge) in concurrencies().filter(|_| reply.verdict == Verdict::Done) {
        match step {
            PermitStep::Release(_) => permits.release(index, id, now),
            _ => permits.hold(index, id, charge.limit().limit().fill_time(), now),
        }
    }
    reply
}
