//! Who was limited most, in bounded memory.

use std::time::Duration;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};
use smol_str::SmolStr;
use spile_core::Micros;
use std::hash::BuildHasher;

/// The most keys that are held. At the bound, those that were limited least are evicted.
const MOST: usize = 65_536;

/// A key that was limited under a rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct LimitedKey {
    /// The key, as `spile inspect` takes it.
    pub(super) key: SmolStr,
    pub(super) rule: SmolStr,
    /// How often it was limited, or would have been.
    pub(super) count: u64,
    pub(super) first: Micros,
    pub(super) last: Micros,
    /// The longest wait that was reported to it.
    pub(super) longest_wait: Duration,
}

/// The keys that were limited.
#[derive(Debug)]
pub(super) struct LimitedKeys {
    hasher: RandomState,
    most: usize,
    keys: HashMap<u64, LimitedKey>,
    /// By how much a count may be too low: the sum of the thresholds below which keys were evicted.
    pub(super) error: u64,
}

impl Default for LimitedKeys {
    fn default() -> Self {
        Self { hasher: RandomState::default(), most: MOST, keys: HashMap::new(), error: 0 }
    }
}

impl LimitedKeys {
    pub(super) fn note(&mut self, rule: &str, key: &str, at: Micros, wait: Duration) {
        let fingerprint = self.hasher.hash_one((rule, key));
        if self.keys.len() >= self.most && !self.keys.contains_key(&fingerprint) {
            self.make_room();
        }
        let known = self.keys.entry(fingerprint).or_insert_with(|| LimitedKey {
            key: SmolStr::new(key),
            rule: SmolStr::new(rule),
            count: 0,
            first: at,
            last: at,
            longest_wait: wait,
        });
        known.count += 1;
        known.last = at;
        known.longest_wait = known.longest_wait.max(wait);
    }

    /// Returns up to `most` keys, those that were limited most first.
    pub(super) fn top(&self, most: usize) -> Vec<LimitedKey> {
        let mut all: Vec<&LimitedKey> = self.keys.values().collect();
        let order = |key: &&LimitedKey| (std::cmp::Reverse(key.count), key.first, key.key.clone());
        all.sort_by_key(order);
        all.into_iter().take(most).cloned().collect()
    }

    /// The number of keys: a lower bound once some have been evicted.
    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }

    fn make_room(&mut self) {
        let mut counts: Vec<u64> = self.keys.values().map(|key| key.count).collect();
        let middle = counts.len() / 2;
        let (_, &mut median, _) = counts.select_nth_unstable(middle);
        self.error += median;
        self.keys.retain(|_, key| key.count > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_keys_does_not_hide_the_one_that_is_limited_most() {
        let mut keys = LimitedKeys { most: 64, ..LimitedKeys::default() };
        for at in 0..100_000_u64 {
            keys.note("default", &format!("ip:{at}"), Micros::new(at), Duration::from_secs(1));
            if at % 10 == 0 {
                keys.note("default", "ip:regular", Micros::new(at), Duration::from_secs(at));
            }
        }
        let first = keys.top(1).remove(0);
        assert_eq!(first.key, "ip:regular");
        assert!(first.count + keys.error >= 10_000 && first.count <= 10_000, "{first:?}, {}", keys.error);
        assert!(keys.count() <= 64);
    }

    #[test]
    fn one_key_under_two_rules_is_two() {
        let mut keys = LimitedKeys::default();
        for rule in ["a", "b", "a"] {
            keys.note(rule, "ip:1", Micros::new(1), Duration::ZERO);
        }
        let top: Vec<_> = keys.top(9).into_iter().map(|key| (key.rule.to_string(), key.count)).collect();
        assert_eq!(top, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        assert_eq!(keys.error, 0);
    }
}
