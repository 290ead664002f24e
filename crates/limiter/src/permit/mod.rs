//! Permits: places of a concurrency that this process holds, renews and releases.

mod held;
mod keeper;
mod lent;
mod stats;
mod turns;

use std::sync::Arc;

use spile_core::{Decision, PermitId, StoreError};

pub(crate) use self::held::{HeldPlaces, PlacesIn};
pub(crate) use self::keeper::{PermitKeeper, RELEASE, ReleaseWork, SOON, Unreleased};
pub use self::stats::{PermitCounts, PermitStats};

/// A place of every concurrency of a chain, until it is dropped or released. It is renewed in the background.
///
/// If it cannot be renewed within its hold time, because the store does not answer or this process was suspended, others may
/// take the place: [`is_held`](Self::is_held) and [`lost`](Self::lost) report that. Work that must not overlap stops then.
#[must_use = "a permit is released when it is dropped"]
pub struct Permit {
    places: Arc<HeldPlaces>,
    decision: Decision,
    release: Arc<dyn ReleaseWork>,
}

impl Permit {
    pub(crate) fn new(places: Arc<HeldPlaces>, decision: Decision, release: Arc<dyn ReleaseWork>) -> Self {
        Self { places, decision, release }
    }

    /// The decision that took it.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Its unique id.
    pub fn id(&self) -> &PermitId {
        &self.places.id
    }

    /// True as long as its hold time has not passed since it was taken or last renewed. Once false, it stays so.
    pub fn is_held(&self) -> bool {
        self.places.is_held(self.release.now())
    }

    /// Returns when it is not held any more, although it was neither released nor dropped.
    pub async fn lost(&self) {
        // The runtime that it was taken on may have ended.
        Arc::clone(&self.release).keep_here();
        loop {
            // Made before the look at the time, so that no loss in between is missed.
            let lost = self.places.loss();
            let Some(left) = self.places.time_left(self.release.now()) else { return };
            // Renewals prolong the time, so it is looked at again when it should be over.
            let _looked = self.release.runtime().timeout(left, lost).await;
        }
    }

    /// Leaves it to the caller, who renews and releases it by its id.
    pub fn leave(self) -> PermitId {
        self.places.ended.set(true);
        self.release.leave(&self.places);
        self.places.id.clone()
    }

    /// Releases it, and waits until the store has confirmed that. Dropping it releases it in the background.
    pub async fn release(self) -> Result<(), StoreError> {
        let (places, release) = (Arc::clone(&self.places), Arc::clone(&self.release));
        if places.ended.set(true) {
            release.release_now(places).await?;
        }
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.places.ended.set(true) {
            Arc::clone(&self.release).release_later(Arc::clone(&self.places));
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let until = self.places.valid_until();
        f.debug_struct("Permit").field("id", self.id()).field("until", &until).finish_non_exhaustive()
    }
}
