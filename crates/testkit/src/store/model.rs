//! The simplest store: a map, one lock, and the arithmetic of `spile-core`. Other stores are compared with it.

use std::collections::HashMap;
use std::future::ready;
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{
    Bucket, BucketSlot, Charge, ChargeOutcome, Charges, Clock, Cost, HeldPermit, Micros, Outcome,
    PartialOutcome, PermitId, PermitStep, RefundId, RefundOutcome, ReservationMarker, SettleOutcome, Store,
    StoreError,
};

/// Buckets in a map that never evicts. Slow, unbounded and obviously correct.
#[derive(Debug)]
pub struct ModelStore<C> {
    clock: C,
    buckets: Mutex<HashMap<(String, String), Bucket>>,
    permits: Mutex<HashMap<(String, String), Vec<HeldPermit>>>,
}

impl<C: Clock> ModelStore<C> {
    /// An empty store that tells the time by `clock`.
    pub fn new(clock: C) -> Self {
        Self { clock, buckets: Mutex::default(), permits: Mutex::default() }
    }

    /// What is stored for a key under a limit.
    pub fn bucket(&self, key: &str, limit: &str) -> Option<Bucket> {
        self.buckets.lock().get(&(key.to_owned(), limit.to_owned())).copied()
    }

    /// The permits that are stored for a key under a limit, with those whose time is up.
    pub fn permits(&self, key: &str, limit: &str) -> Vec<HeldPermit> {
        let mut permits =
            self.permits.lock().get(&(key.to_owned(), limit.to_owned())).cloned().unwrap_or_default();
        permits.sort_by_key(|permit| (permit.until, permit.id.clone()));
        permits
    }

    fn step<T>(
        &self,
        charges: &Charges<'_>,
        step: impl FnOnce(&Charges<'_>, &mut [BucketSlot], Micros) -> T,
    ) -> T {
        self.step_with(charges, self.clock.now(), |_| 0, step)
    }

    /// A step in which so many permits count as free although they are held.
    fn step_with<T>(
        &self,
        charges: &Charges<'_>,
        now: Micros,
        retaken: impl Fn(&Charge<'_>) -> u32,
        step: impl FnOnce(&Charges<'_>, &mut [BucketSlot], Micros) -> T,
    ) -> T {
        let mut buckets = self.buckets.lock();
        let read = |charge: &Charge<'_>| {
            if charge.needs_permit() {
                let (limit, held) = (charge.limit().limit(), self.held(charge, now).len() as u32);
                // A permit that is held keeps its place, also if there are fewer places than before.
                let free = limit.capacity().saturating_sub(held).saturating_add(retaken(charge));
                let held = limit.capacity().saturating_sub(free);
                return BucketSlot::read(Some(Bucket::places(limit, held, now)));
            }
            BucketSlot::read(buckets.get(&name(charge)).copied())
        };
        let mut slots: Vec<BucketSlot> = charges.iter().map(read).collect();
        let taken = step(charges, &mut slots, now);
        for (charge, slot) in charges.iter().zip(slots).filter(|(charge, _)| !charge.needs_permit()) {
            match slot.bucket {
                Some(bucket) if slot.dirty => drop(buckets.insert(name(charge), bucket)),
                None if slot.dirty => drop(buckets.remove(&name(charge))),
                _ => {}
            }
        }
        taken
    }

    /// The permits whose time is not up.
    fn held(&self, charge: &Charge<'_>, now: Micros) -> Vec<HeldPermit> {
        let permits = self.permits.lock();
        let held = permits.get(&name(charge)).into_iter().flatten();
        held.filter(|permit| permit.until > now).cloned().collect()
    }

    fn permit_step(&self, charges: &Charges<'_>, id: &PermitId, step: PermitStep) -> Outcome {
        let now = self.clock.now();
        let own = |charge: &Charge<'_>| {
            self.held(charge, now).iter().filter(|permit| permit.id == *id).count() as u32
        };
        let concerned = || charges.iter().filter(|charge| charge.needs_permit());
        let end = |charge: &Charge<'_>| {
            if let Some(held) = self.permits.lock().get_mut(&name(charge)) {
                held.retain(|permit| permit.id != *id);
            }
        };
        // What is renewed or released is not counted.
        let all = |_: &Charge<'_>| u32::MAX;
        if step == PermitStep::Release {
            let allowed = concerned().any(|charge| own(charge) > 0);
            concerned().filter(|charge| own(charge) > 0).for_each(end);
            return Outcome { allowed, ..self.step_with(charges, now, all, spile_core::refund) };
        }
        if step != PermitStep::Renew {
            concerned().for_each(|charge| self.clean(charge, now));
        }
        let outcome = match step {
            PermitStep::Renew => {
                let allowed = concerned().all(|charge| own(charge) > 0);
                Outcome { allowed, ..self.step_with(charges, now, all, spile_core::peek) }
            }
            _ => self.step_with(charges, now, own, spile_core::acquire),
        };
        if outcome.allowed {
            for charge in concerned() {
                end(charge);
                let until = now + charge.limit().limit().fill_time();
                let held = HeldPermit { id: id.clone(), until };
                self.permits.lock().entry(name(charge)).or_default().push(held);
            }
        }
        outcome
    }

    /// Removes permits whose time is up. If all places are taken, permits that end later than their hold time are shortened: the
    /// clock has stepped back.
    fn clean(&self, charge: &Charge<'_>, now: Micros) {
        let limit = charge.limit().limit();
        if let Some(held) = self.permits.lock().get_mut(&name(charge)) {
            held.retain(|permit| permit.until > now);
        }
        if self.held(charge, now).len() < limit.capacity() as usize {
            return;
        }
        let until = now + limit.fill_time();
        for permit in self.permits.lock().get_mut(&name(charge)).into_iter().flatten() {
            if permit.until > until + Duration::from_secs(1) {
                permit.until = until;
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
        let now = self.clock.now();
        let held = |charge: &Charge<'_>| {
            let mut held = self.held(charge, now);
            held.sort_by_key(|permit| (permit.until, permit.id.clone()));
            held
        };
        ready(Ok(charges.iter().map(held).collect()))
    }

    fn reset(&self, charges: &Charges<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        let mut buckets = self.buckets.lock();
        for charge in charges.iter() {
            buckets.remove(&name(charge));
            self.permits.lock().remove(&name(charge));
        }
        ready(Ok(()))
    }
}

fn name(charge: &Charge<'_>) -> (String, String) {
    (charge.key().as_str().to_owned(), charge.limit().name().to_string())
}
