//! Counts of the permits of this process, by limit.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use spile_core::LimitName;

use super::HeldPlaces;

/// The permits of one limit that this process took.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct PermitCounts {
    /// Held now.
    pub held: u64,
    /// Taken so far.
    pub acquired: u64,
    /// Released so far.
    pub released: u64,
    /// Lost so far: neither renewed nor released within the hold time.
    pub lost: u64,
    /// Questions that waited for a place.
    pub waited: u64,
}

/// The permits of each limit that this process took.
pub type PermitStats = BTreeMap<LimitName, PermitCounts>;

/// The counts behind [`PermitStats`].
#[derive(Debug, Default)]
pub(crate) struct StatsTable(Mutex<PermitStats>);

impl StatsTable {
    pub(crate) fn snapshot(&self) -> PermitStats {
        self.0.lock().clone()
    }

    /// Changes the counts of each limit of a permit.
    pub(crate) fn count(&self, places: &HeldPlaces, change: impl Fn(&mut PermitCounts)) {
        self.count_limits(places.places().map(|(_, limit)| limit), change);
    }

    pub(crate) fn count_limits<'a>(
        &self,
        limits: impl Iterator<Item = &'a LimitName>,
        change: impl Fn(&mut PermitCounts),
    ) {
        let mut counts = self.0.lock();
        for limit in limits {
            change(counts.entry(limit.clone()).or_default());
        }
    }
}
