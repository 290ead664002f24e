//! The permits of one shard: for each bucket a set, ordered by id and by expiry.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use spile_core::{HeldPermit, Micros, PermitId};

use crate::table::fingerprint::Fingerprint;
use crate::table::permit_room::PermitRoom;

/// How far beyond its hold time a permit may end before it is shortened. A smaller excess is jitter of the clock.
const JITTER: Duration = Duration::from_secs(1);
/// The most permits that are listed.
const LISTED: usize = 1_000;

/// The permits of all buckets of a shard.
#[derive(Debug)]
pub(crate) struct PermitTable {
    sets: BTreeMap<Fingerprint, BucketPermits>,
    /// The number of permits, including expired ones.
    pub(crate) len: usize,
    /// The room that all shards share.
    room: Arc<PermitRoom>,
    /// The number of permits that were found expired.
    pub(crate) expired: u64,
    /// The bucket after which the next sweep starts.
    cursor: Fingerprint,
}

/// The permits of one bucket. Expired ones do not count, and stay until a place is requested.
#[derive(Debug, Default)]
struct BucketPermits {
    until: BTreeMap<PermitId, Micros>,
    by_time: BTreeSet<(Micros, PermitId)>,
}

impl PermitTable {
    /// A table whose permits count towards this room.
    pub(crate) const fn new(room: Arc<PermitRoom>) -> Self {
        Self { sets: BTreeMap::new(), len: 0, room, expired: 0, cursor: Fingerprint::NONE }
    }

    /// True if the store has no room for another permit.
    pub(crate) fn is_full(&self) -> bool {
        self.room.is_full()
    }

    /// Counts permits of a bucket that were removed.
    fn removed(&mut self, fingerprint: Fingerprint, permits: usize) {
        self.len -= permits;
        self.room.free(permits);
        if self.sets.get(&fingerprint).is_some_and(|set| set.until.is_empty()) {
            self.sets.remove(&fingerprint);
        }
    }

    /// Removes the expired permits of a bucket.
    pub(crate) fn end_expired(&mut self, fingerprint: Fingerprint, now: Micros) {
        let Some(set) = self.sets.get_mut(&fingerprint) else { return };
        let before = set.until.len();
        while set.by_time.first().is_some_and(|(until, _)| *until <= now)
            && let Some((_, id)) = set.by_time.pop_first()
        {
            set.until.remove(&id);
        }
        let ended = before - set.until.len();
        self.expired += ended as u64;
        self.removed(fingerprint, ended);
    }

    /// Removes the expired permits of the next `buckets` buckets.
    pub(crate) fn sweep(&mut self, buckets: usize, now: Micros) {
        for _ in 0..buckets.min(self.sets.len()) {
            let after = (Bound::Excluded(self.cursor), Bound::Unbounded);
            let next = self.sets.range(after).next().or_else(|| self.sets.iter().next());
            let Some((&fingerprint, _)) = next else { return };
            self.cursor = fingerprint;
            self.end_expired(fingerprint, now);
        }
    }

    /// Shortens the permits of a bucket that end later than this time from now, and than their own hold time: the clock has stepped back.
    pub(crate) fn end_within(&mut self, fingerprint: Fingerprint, hold: Duration, now: Micros) {
        let Some(set) = self.sets.get(&fingerprint) else { return };
        let is_late = |(until, _): &&(Micros, PermitId)| *until > now + hold + JITTER;
        let late: Vec<_> = set.by_time.iter().rev().take_while(is_late).map(|(_, id)| id.clone()).collect();
        for id in late {
            let latest = now + id.longest_hold(hold);
            if self.sets[&fingerprint].until[&id] > latest + JITTER {
                self.hold(fingerprint, &id, latest);
            }
        }
    }

    /// The number of permits of a bucket that are held.
    pub(crate) fn count(&self, fingerprint: Fingerprint, now: Micros) -> u32 {
        let live = |set: &BucketPermits| {
            let ended = set.by_time.iter().take_while(|(until, _)| *until <= now).count();
            (set.by_time.len() - ended) as u32
        };
        self.sets.get(&fingerprint).map_or(0, live)
    }

    pub(crate) fn is_held(&self, fingerprint: Fingerprint, id: &PermitId, now: Micros) -> bool {
        let until = self.sets.get(&fingerprint).and_then(|set| set.until.get(id));
        until.is_some_and(|until| *until > now)
    }

    /// Records a permit that ends at `until`, or extends it.
    pub(crate) fn hold(&mut self, fingerprint: Fingerprint, id: &PermitId, until: Micros) {
        let set = self.sets.entry(fingerprint).or_default();
        if let Some(before) = set.until.insert(id.clone(), until) {
            set.by_time.remove(&(before, id.clone()));
        } else {
            self.len += 1;
            self.room.take();
        }
        set.by_time.insert((until, id.clone()));
    }

    /// Ends a permit if it is held. One that has expired is left to be counted as such.
    pub(crate) fn release(&mut self, fingerprint: Fingerprint, id: &PermitId, now: Micros) {
        if self.is_held(fingerprint, id, now)
            && let Some(set) = self.sets.get_mut(&fingerprint)
            && let Some(until) = set.until.remove(id)
        {
            set.by_time.remove(&(until, id.clone()));
            self.removed(fingerprint, 1);
        }
    }

    /// Releases all permits of a bucket.
    pub(crate) fn free(&mut self, fingerprint: Fingerprint) {
        let ended = self.sets.remove(&fingerprint).map_or(0, |set| set.until.len());
        self.removed(fingerprint, ended);
    }

    /// The permits of a bucket that are held: those that end first, up to a bound.
    pub(crate) fn holders(&self, fingerprint: Fingerprint, now: Micros) -> Vec<HeldPermit> {
        let by_time = self.sets.get(&fingerprint).into_iter().flat_map(|set| &set.by_time);
        let held = by_time.skip_while(|(until, _)| *until <= now);
        held.take(LISTED).map(|(until, id)| HeldPermit { id: id.clone(), until: *until }).collect()
    }

    /// All permits.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Fingerprint, &PermitId, Micros)> {
        self.sets
            .iter()
            .flat_map(|(fingerprint, set)| set.until.iter().map(|(id, until)| (*fingerprint, id, *until)))
    }
}
