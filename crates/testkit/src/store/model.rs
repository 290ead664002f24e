//! The simplest store: a map, one lock, and the arithmetic of `spile-core`. Other stores are compared with it.

use std::collections::HashMap;
use std::future::ready;

use parking_lot::Mutex;
use spile_core::{
    Bucket, BucketSlot, Charge, ChargeOutcome, Charges, Clock, Cost, Micros, Outcome, PartialOutcome,
    RefundId, RefundOutcome, ReservationMarker, SettleOutcome, Store, StoreError,
};

/// Buckets in a map that never evicts. Slow, unbounded and obviously correct.
#[derive(Debug)]
pub struct ModelStore<C> {
    clock: C,
    buckets: Mutex<HashMap<(String, String), Bucket>>,
}

impl<C: Clock> ModelStore<C> {
    /// An empty store that tells the time by `clock`.
    pub fn new(clock: C) -> Self {
        Self { clock, buckets: Mutex::new(HashMap::new()) }
    }

    /// What is stored for a key under a limit.
    pub fn bucket(&self, key: &str, limit: &str) -> Option<Bucket> {
        self.buckets.lock().get(&(key.to_owned(), limit.to_owned())).copied()
    }

    fn step<T>(
        &self,
        charges: &Charges<'_>,
        step: impl FnOnce(&Charges<'_>, &mut [BucketSlot], Micros) -> T,
    ) -> T {
        let mut buckets = self.buckets.lock();
        let mut slots: Vec<BucketSlot> =
            charges.iter().map(|charge| BucketSlot::read(buckets.get(&name(charge)).copied())).collect();
        let taken = step(charges, &mut slots, self.clock.now());
        for (charge, slot) in charges.iter().zip(slots) {
            match slot.bucket {
                Some(bucket) if slot.dirty => drop(buckets.insert(name(charge), bucket)),
                None if slot.dirty => drop(buckets.remove(&name(charge))),
                _ => {}
            }
        }
        taken
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

    fn reset(&self, charges: &Charges<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        let mut buckets = self.buckets.lock();
        for charge in charges.iter() {
            buckets.remove(&name(charge));
        }
        ready(Ok(()))
    }
}

fn name(charge: &Charge<'_>) -> (String, String) {
    (charge.key().as_str().to_owned(), charge.limit().name().to_string())
}
