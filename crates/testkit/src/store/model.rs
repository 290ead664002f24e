//! The simplest store: a map, one lock, and the arithmetic of `spile-core`. Other stores are compared with it.

use std::collections::HashMap;

use parking_lot::Mutex;
use spile_core::{
    Answer, Bucket, BucketSlot, Charge, Charges, Clock, HeldPermit, Inspect, Kept, Micros, Operation,
    PermitSet, Reply, Shape, Store, StoreError, decide, permit,
};

/// Buckets in a map that never evicts. Slow, unbounded and obviously correct.
#[derive(Debug)]
pub struct ModelStore<C> {
    clock: C,
    state: Mutex<ModelState>,
}

#[derive(Debug, Default)]
struct ModelState {
    buckets: HashMap<BucketId, Bucket>,
    permits: HashMap<BucketId, PermitSet>,
}

/// A key, the name of a limit, and the code of its shape.
type BucketId = (String, String, u64);

impl<C: Clock> ModelStore<C> {
    /// An empty store on `clock`.
    pub fn new(clock: C) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// The bucket of a charge, as it is stored.
    pub fn bucket(&self, charge: &Charge<'_>) -> Option<Bucket> {
        self.state.lock().buckets.get(&id(charge)).copied()
    }

    /// The permits that are stored for a key under a limit, with those whose time is up, the first to end first.
    pub fn permits(&self, key: &str, limit: &str) -> Vec<HeldPermit> {
        let id = (key.to_owned(), limit.to_owned(), Shape::CONCURRENCY);
        self.state.lock().permits.get(&id).map_or_else(Vec::new, |set| set.holders(Micros::new(0)))
    }

    /// Runs one operation.
    pub fn run(&self, operation: Operation<'_>, charges: &Charges<'_>) -> Reply {
        let charges = &*operation.with_markers(charges);
        let (mut state, now) = (self.state.lock(), self.clock.now());
        let mut slots = state.slots(charges, now);
        let reply = match operation {
            Operation::Permit(id, step) => {
                let mut sets: Vec<_> = charges.iter().map(|charge| state.set(charge)).collect();
                let reply = permit(charges, id, step, &mut slots, &mut sets[..], now);
                state.permits.extend(charges.iter().map(self::id).zip(sets));
                reply
            }
            _ => decide(&operation, charges, &mut slots, now),
        };
        state.write(charges, slots);
        if matches!(operation, Operation::Reset) {
            charges.iter().for_each(|charge| drop(state.permits.remove(&id(charge))));
        }
        reply
    }
}

impl ModelState {
    fn slots(&self, charges: &Charges<'_>, now: Micros) -> Vec<BucketSlot> {
        let read = |charge: &Charge<'_>| {
            if charge.needs_permit() {
                return BucketSlot::read(Some(self.set(charge).places(charge.limit().limit(), now)));
            }
            BucketSlot::read(self.buckets.get(&id(charge)).copied())
        };
        charges.iter().map(read).collect()
    }

    fn set(&self, charge: &Charge<'_>) -> PermitSet {
        self.permits.get(&id(charge)).cloned().unwrap_or_default()
    }

    fn write(&mut self, charges: &Charges<'_>, slots: Vec<BucketSlot>) {
        for (charge, slot) in charges.iter().zip(slots).filter(|(charge, _)| !charge.needs_permit()) {
            match slot.bucket {
                Some(bucket) if slot.dirty => drop(self.buckets.insert(id(charge), bucket)),
                None if slot.dirty => drop(self.buckets.remove(&id(charge))),
                _ => {}
            }
        }
    }
}

/// Answers later, as a store behind a network does.
impl<C: Clock> Store for ModelStore<C> {
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        Answer::Later(async move { Ok(self.run(operation, charges)) })
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl<C: Clock> Inspect for ModelStore<C> {
    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        let (state, now) = (self.state.lock(), self.clock.now());
        Ok(charges.iter().map(|charge| state.set(charge).holders(now)).collect())
    }

    async fn kept(&self, charges: &Charges<'_>) -> Result<Vec<Kept>, StoreError> {
        let kept = |charge: &Charge<'_>| self.bucket(charge).map_or(Kept::Absent, |_| Kept::UntilFull);
        Ok(charges.iter().map(kept).collect())
    }
}

fn id(charge: &Charge<'_>) -> BucketId {
    let limit = charge.limit();
    (charge.key().as_str().to_owned(), limit.name().to_string(), limit.limit().shape().code())
}
