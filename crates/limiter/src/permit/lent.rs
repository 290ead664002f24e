//! Permits that callers renew and release by their ids. This process only remembers them, for counts.

use std::collections::HashMap;

use parking_lot::Mutex;
use spile_core::{Charges, Micros, PermitId};

use super::{HeldPlaces, PlacesIn};

/// The most permits that are remembered.
const MOST: usize = 100_000;

/// Permits that were taken or renewed here and not released here, until their hold time ends.
#[derive(Debug, Default)]
pub(crate) struct LentPermits(Mutex<HashMap<PermitId, HeldPlaces>>);

impl LentPermits {
    /// A permit was taken or renewed by a question that was sent then.
    pub(crate) fn note(&self, id: &PermitId, charges: &Charges<'_>, sent: Micros) {
        let mut lent = self.0.lock();
        if let Some(places) = lent.get(id) {
            return places.renewed(sent, PlacesIn::Store);
        }
        // Those that have ended are removed when the numbers are next asked for.
        if lent.len() < MOST {
            lent.insert(id.clone(), HeldPlaces::new(id.clone(), charges, sent, None));
        }
    }

    /// True if it was taken or renewed here within its hold time.
    pub(crate) fn is_held(&self, id: &PermitId, now: Micros) -> bool {
        self.0.lock().get(id).is_some_and(|places| places.is_held(now))
    }

    /// A permit was released, or is not held any more.
    pub(crate) fn forget(&self, id: &PermitId) {
        self.0.lock().remove(id);
    }

    /// Calls `visit` with each that is held.
    pub(crate) fn each(&self, now: Micros, visit: impl FnMut(&HeldPlaces)) {
        let mut lent = self.0.lock();
        lent.retain(|_, places| places.is_held(now));
        lent.values().for_each(visit);
    }
}
