//! The simplest store: a map, one lock, and the arithmetic of `spile-core`. Other stores are compared with it.

use std::collections::HashMap;
use std::future::ready;

use parking_lot::Mutex;
use spile_core::{
    Bucket, BucketSlot, Charge, ChargeOutcome, Charges, Clock, Cost, HeldPermit, Micros, Outcome,
    PartialOutcome, PermitId, PermitSet, PermitStep, RefundId, RefundOutcome, ReservationMarker,
    SettleOutcome, Store, StoreError,
};

/// Buckets in a map that never evicts. Slow, unbounded and obviously correct.
#[derive(Debug)]
pub struct ModelStore<C> {
    clock: C,
    state: Mutex<ModelState>,
}

#[derive(Debug, Default)]
struct ModelState {
    buckets: HashMap<(String, String), Bucket>,
    permits: HashMap<(String, String), PermitSet>,
}

impl<C: Clock> ModelStore<C> {
    /// An empty store that tells the time by `clock`.
    pub fn new(clock: C) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// What is stored for a key under a limit.
    pub fn bucket(&self, key: &str, limit: &str) -> Option<Bucket> {
        self.state.lock().buckets.get(&(key.to_owned(), limit.to_owned())).copied()
    }

    /// The permits that are stored for a key under a limit, with those whose time is up, the first to end first.
    pub fn permits(&self, key: &str, limit: &str) -> Vec<HeldPermit> {
        let state = self.state.lock();
        state
            .permits
            .get(&(key.to_owned(), limit.to_owned()))
            .map_or_else(Vec::new, |set| set.holders(Micros::new(0)))
    }

    fn step<T>(
        &self,
        charges: &Charges<'_>,
        step: impl FnOnce(&Charges<'_>, &mut [BucketSlot], Micros) -> T,
    ) -> T {
        let (mut state, now) = (self.state.lock(), self.clock.now());
        let mut slots = state.slots(charges, now);
        let taken = step(charges, &mut slots, now);
        state.write(charges, slots);
        taken
    }

    fn permit_step(&self, charges: &Charges<'_>, id: &PermitId, step: PermitStep) -> Outcome {
        let (mut state, now) = (self.state.lock(), self.clock.now());
        let mut slots = state.slots(charges, now);
        let mut sets: Vec<_> = charges.iter().map(|charge| state.set(charge)).collect();
        let outcome = spile_core::permit(charges, id, step, &mut slots, &mut sets, now);
        state.write(charges, slots);
        state.permits.extend(charges.iter().map(name).zip(sets));
        outcome
    }
}

impl ModelState {
    fn slots(&self, charges: &Charges<'_>, now: Micros) -> Vec<BucketSlot> {
        let read = |charge: &Charge<'_>| {
            if charge.needs_permit() {
                return BucketSlot::read(Some(self.set(charge).places(charge.limit().limit(), now)));
            }
            BucketSlot::read(self.buckets.get(&name(charge)).copied())
        };
        charges.iter().map(read).collect()
    }

    fn set(&self, charge: &Charge<'_>) -> PermitSet {
        self.permits.get(&name(charge)).cloned().unwrap_or_default()
    }

    fn write(&mut self, charges: &Charges<'_>, slots: Vec<BucketSlot>) {
        for (charge, slot) in charges.iter().zip(slots).filter(|(charge, _)| !charge.needs_permit()) {
            match slot.bucket {
                Some(bucket) if slot.dirty => drop(self.buckets.insert(name(charge), bucket)),
                None if slot.dirty => drop(self.buckets.remove(&name(charge))),
                _ => {}
            }
        }
    }
}

impl<C: Clock> Store for ModelStore<C> {
    fn spend(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        ready(Ok(self.step(charges, spile_core::spend)))
    }

    fn peek(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        ready(Ok(self.step(charges, spile_core::peek)))
    }

    fn spend_up_to(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<PartialOutcome, StoreError>> + Send {
        ready(Ok(self.step(charges, spile_core::spend_up_to)))
    }

    fn charge(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<ChargeOutcome, StoreError>> + Send {
        ready(Ok(self.step(charges, spile_core::charge)))
    }

    fn refund(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        ready(Ok(self.step(charges, spile_core::refund)))
    }

    fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> impl Future<Output = Result<RefundOutcome, StoreError>> + Send {
        ready(Ok(self.step(&id.mark(charges), spile_core::refund_once)))
    }

    fn settle(
        &self,
        charges: &Charges<'_>,
        marker: ReservationMarker,
        actual: Cost,
    ) -> impl Future<Output = Result<SettleOutcome, StoreError>> + Send {
        ready(Ok(self.step(&marker.settle(charges, actual), spile_core::settle)))
    }

    fn permit(
        &self,
        charges: &Charges<'_>,
        id: &PermitId,
        step: PermitStep,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        ready(Ok(self.permit_step(charges, id, step)))
    }

    fn holders(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Vec<Vec<HeldPermit>>, StoreError>> + Send {
        let (state, now) = (self.state.lock(), self.clock.now());
        ready(Ok(charges.iter().map(|charge| state.set(charge).holders(now)).collect()))
    }

    fn reset(&self, charges: &Charges<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        let mut state = self.state.lock();
        for charge in charges.iter() {
            state.buckets.remove(&name(charge));
            state.permits.remove(&name(charge));
        }
        ready(Ok(()))
    }
}

fn name(charge: &Charge<'_>) -> (String, String) {
    (charge.key().as_str().to_owned(), charge.limit().name().to_string())
}
