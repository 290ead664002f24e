//! The state of Redis as the oracle remembers it, with all that Redis may have forgotten.

use std::collections::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::types::{BucketId, PlainLimit};

/// A map that iterates in the same order in every run.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// Redis keeps a key for at least this long after its last bucket is full.
const KEPT_LONGER_MS: i128 = 2;
/// The longest time to live.
const CENTURY_MS: i128 = 3_155_760_000_000;
/// A moment that has always passed.
const NEVER: i128 = i128::MIN;

/// The two fields of a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Fields {
    /// The amount held or used.
    pub(super) amount: i128,
    /// When it was written, or the end of the window.
    pub(super) time: i128,
}

/// How long Redis has to keep a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    /// The server's time from which on it may be gone.
    until: i128,
    /// The number of the call that saw it last.
    seen: u64,
}

impl Lifetime {
    pub(super) const NONE: Self = Self { until: NEVER, seen: 0 };

    /// Keeps it for this time from now on, and for no shorter time than before unless that may be over. What is full now need not be kept.
    pub(super) fn extend(&mut self, time: i128, clock: &ServerClock) {
        if self.may_be_over(clock) {
            self.until = NEVER;
        }
        if time > 0 {
            let ttl_ms = CENTURY_MS.min((time + 999) / 1_000 + KEPT_LONGER_MS);
            // Redis compares whole milliseconds, and a key expires after the last one.
            self.until = self.until.max(1_000 * (clock.now / 1_000 + ttl_ms + 1));
        }
        self.seen = clock.call;
    }

    pub(super) fn may_be_over(&self, clock: &ServerClock) -> bool {
        clock.highest_since(self.seen) >= self.until
    }

    /// True if it was over this long ago.
    pub(super) fn is_over_for(&self, time: i128, clock: &ServerClock) -> bool {
        self.until.saturating_add(time) < clock.now
    }
}

/// Keys that another writer changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Foreign {
    /// Those that cannot be read, until a question repairs them.
    pub(super) broken: BTreeSet<String>,
    /// Those that a newer version wrote.
    pub(super) newer: BTreeSet<String>,
}

/// A bucket of a hash, or a marker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// `None` for a bucket that is not stored.
    pub(super) fields: Option<Fields>,
    pub(super) lifetime: Lifetime,
    /// True after a refusal that may have written it or not. The next reply shows it.
    pub(super) is_uncertain: bool,
    /// The limit that last came with it. Markers have none.
    pub(super) limit: Option<PlainLimit>,
}

impl Record {
    pub(super) const ABSENT: Self =
        Self { fields: None, lifetime: Lifetime::NONE, is_uncertain: false, limit: None };

    /// True if Redis may have forgotten it in time.
    pub(super) fn may_be_gone(&self, clock: &ServerClock) -> bool {
        self.fields.is_none() || self.lifetime.may_be_over(clock)
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.fields.is_none() && !self.is_uncertain
    }
}

/// A set of permits: when each ends.
#[derive(Clone, Debug)]
pub(super) struct Permits {
    /// Those that are stored.
    pub(super) certain: BTreeMap<Vec<u8>, i128>,
    /// Those that may be stored: Redis may have forgotten them, or have refused to write or to remove them.
    pub(super) possible: BTreeMap<Vec<u8>, i128>,
    /// True if a refused call may have shortened a possible permit, so that its end is not known.
    pub(super) has_unknown_ends: bool,
    pub(super) lifetime: Lifetime,
    pub(super) limit: Option<PlainLimit>,
}

impl Permits {
    pub(super) const EMPTY: Self = Self {
        certain: BTreeMap::new(),
        possible: BTreeMap::new(),
        has_unknown_ends: false,
        lifetime: Lifetime::NONE,
        limit: None,
    };

    /// If Redis may have forgotten the set, all its permits are only possible.
    pub(super) fn doubt_if_over(&mut self, clock: &ServerClock) {
        if !self.certain.is_empty() && self.lifetime.may_be_over(clock) {
            self.possible.append(&mut self.certain);
        }
    }

    /// How many are held for certain, and how many more possibly.
    pub(super) fn held(&self, now: i128) -> (i128, i128) {
        let count = |permits: &BTreeMap<_, i128>| permits.values().filter(|end| **end > now).count() as i128;
        (count(&self.certain), count(&self.possible))
    }

    /// Stores a permit until `end`.
    pub(super) fn store(&mut self, permit: &[u8], end: i128, now: i128, clock: &ServerClock) {
        if self.certain.is_empty() {
            // A set with one permit may get a shorter time to live.
            self.lifetime = Lifetime::NONE;
        }
        self.possible.remove(permit);
        self.certain.insert(permit.to_vec(), end);
        self.lifetime.extend(end - now, clock);
    }
}

/// The server's clock at each call, as far as it matters.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerClock {
    pub(super) now: i128,
    /// The number of calls.
    pub(super) call: u64,
    /// Moments that no later one has reached, and the calls that saw them. The moments fall.
    peaks: Vec<(u64, i128)>,
}

impl ServerClock {
    /// Begins a call.
    pub(super) fn advance(&mut self, now: i128) {
        self.now = now;
        self.call += 1;
        while self.peaks.last().is_some_and(|(_, peak)| *peak <= now) {
            self.peaks.pop();
        }
        self.peaks.push((self.call, now));
    }

    /// The highest moment after this call.
    fn highest_since(&self, call: u64) -> i128 {
        let first = self.peaks.partition_point(|(at, _)| *at <= call);
        self.peaks.get(first).map_or(NEVER, |(_, peak)| *peak)
    }
}

/// All that is remembered.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) records: Map<BucketId, Record>,
    pub(super) sets: Map<BucketId, Permits>,
}

#[cfg(test)]
mod tests {
    use super::{Lifetime, ServerClock};

    #[test]
    fn a_lifetime_may_be_over_once_the_clock_was_beyond_it() {
        let mut clock = ServerClock::default();
        clock.advance(10_000);
        let mut lifetime = Lifetime::NONE;
        assert!(lifetime.may_be_over(&clock) || clock.call == 1);
        lifetime.extend(5_000, &clock);
        clock.advance(17_999);
        assert!(!lifetime.may_be_over(&clock));
        clock.advance(18_000);
        clock.advance(12_000);
        assert!(lifetime.may_be_over(&clock), "it may have expired before the clock stepped back");
        lifetime.extend(2_000, &clock);
        clock.advance(16_999);
        assert!(!lifetime.may_be_over(&clock));
        clock.advance(17_000);
        assert!(lifetime.may_be_over(&clock), "the former time to live does not count any more");
    }
}
