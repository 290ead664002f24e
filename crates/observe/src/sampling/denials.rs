//! The last denials of each key, in bounded memory.

use std::collections::VecDeque;

use foldhash::HashMap;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use spile_core::{LimitName, Micros, Reason};

/// The keys of one generation. There are two: the current one, and the one before.
const KEYS: usize = 1_024;
/// The denials of one key that are kept.
const PER_KEY: usize = 8;
/// How long denials of one key by one rule and limit are counted together.
const TOGETHER_US: u64 = 60_000_000;

/// Denials of one key by one rule and one limit within a minute.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeyDenial {
    /// The rule, or an empty text if no rule was asked.
    pub rule: String,
    /// The limit that denied.
    pub limit: String,
    /// Why: `limited`, or `fail_closed` if the store failed.
    pub reason: String,
    /// How many there were, as far as they were sampled.
    pub count: u64,
    /// When the first one was, in milliseconds since the epoch.
    pub first_at_ms: u64,
    /// When the last one was.
    pub last_at_ms: u64,
    /// The wait that was last reported to the caller.
    pub retry_after_ms: u64,
}

/// A denial that is recorded.
pub(crate) struct Denied<'a> {
    pub(crate) rule: &'a str,
    pub(crate) limit: &'a LimitName,
    pub(crate) reason: Reason,
    /// How many denials it stands for.
    pub(crate) weight: u64,
    pub(crate) at: Micros,
    pub(crate) retry_after_ms: u64,
}

struct Episode {
    rule: SmolStr,
    limit: LimitName,
    reason: Reason,
    count: u64,
    first: Micros,
    last: Micros,
    retry_after_ms: u64,
}

type Generation = HashMap<u64, VecDeque<Episode>>;

/// The last denials of up to 2,048 keys. A full generation becomes the previous one, and the previous one is dropped.
#[derive(Default)]
pub(crate) struct RecentDenials {
    now: Generation,
    before: Generation,
}

impl RecentDenials {
    pub(crate) fn record(&mut self, print: u64, denied: &Denied<'_>) {
        if !self.now.contains_key(&print) {
            if self.now.len() >= KEYS {
                self.before = std::mem::take(&mut self.now);
            }
            let known = self.before.remove(&print).unwrap_or_default();
            self.now.insert(print, known);
        }
        let episodes = self.now.entry(print).or_default();
        let same = |episode: &&mut Episode| {
            episode.rule == denied.rule
                && episode.limit == *denied.limit
                && episode.reason == denied.reason
                && denied.at.since_us(episode.first) < TOGETHER_US
        };
        if let Some(episode) = episodes.iter_mut().rev().find(same) {
            episode.count = episode.count.saturating_add(denied.weight);
            (episode.last, episode.retry_after_ms) = (denied.at, denied.retry_after_ms);
            return;
        }
        if episodes.len() >= PER_KEY {
            episodes.pop_front();
        }
        episodes.push_back(Episode {
            rule: SmolStr::new(denied.rule),
            limit: denied.limit.clone(),
            reason: denied.reason,
            count: denied.weight,
            first: denied.at,
            last: denied.at,
            retry_after_ms: denied.retry_after_ms,
        });
    }

    /// The denials of a key, the newest first. `now` and `wall` are the same moment on both clocks.
    pub(crate) fn of(&self, print: u64, now: Micros, wall: Micros) -> Vec<KeyDenial> {
        let at_ms = |at: Micros| wall.get().saturating_sub(now.since_us(at)) / 1_000;
        let denial = |episode: &Episode| KeyDenial {
            rule: episode.rule.to_string(),
            limit: episode.limit.to_string(),
            reason: episode.reason.as_str().to_owned(),
            count: episode.count,
            first_at_ms: at_ms(episode.first),
            last_at_ms: at_ms(episode.last),
            retry_after_ms: episode.retry_after_ms,
        };
        let episodes = self.now.get(&print).or_else(|| self.before.get(&print));
        let mut denials: Vec<_> = episodes.into_iter().flatten().map(denial).collect();
        denials.sort_by_key(|denial| std::cmp::Reverse(denial.last_at_ms));
        denials
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;

    fn denied(limit: &LimitName, second: u64) -> Denied<'_> {
        let at = Micros::from_secs(second);
        Denied { rule: "default", limit, reason: Reason::Limited, weight: 1, at, retry_after_ms: 500 }
    }

    fn limit(name: &str) -> LimitName {
        LimitName::new(name).expect("a name")
    }

    #[test]
    fn denials_of_one_minute_and_limit_are_one_line_and_others_are_apart() {
        let (mut denials, free, pro) = (RecentDenials::default(), limit("free"), limit("pro"));
        for second in [10, 11, 12] {
            denials.record(7, &denied(&free, second));
        }
        denials.record(7, &denied(&pro, 12));
        denials.record(7, &denied(&free, 10 + MINUTE));
        denials.record(8, &denied(&free, 12));
        let (now, wall) = (Micros::from_secs(100), Micros::from_secs(1_000_100));
        let told: Vec<_> = denials
            .of(7, now, wall)
            .into_iter()
            .map(|denial| (denial.limit, denial.count, denial.first_at_ms / 1_000, denial.last_at_ms / 1_000))
            .collect();
        let expected = [
            ("free".to_owned(), 1, 1_000_070, 1_000_070),
            ("free".to_owned(), 3, 1_000_010, 1_000_012),
            ("pro".to_owned(), 1, 1_000_012, 1_000_012),
        ];
        assert_eq!(told, expected);
        assert_eq!(denials.of(9, now, wall), []);
    }

    #[test]
    fn however_many_keys_are_denied_the_memory_is_bounded_and_who_is_denied_again_stays() {
        let (mut denials, free) = (RecentDenials::default(), limit("free"));
        for key in 0..100_000_u64 {
            denials.record(key + 1, &denied(&free, key));
            // One of a thousand is denied all the time.
            if key % 1_000 == 0 {
                denials.record(0, &denied(&free, key));
            }
        }
        assert!(denials.now.len() <= KEYS && denials.before.len() <= KEYS);
        assert!(
            denials.now.values().chain(denials.before.values()).all(|episodes| episodes.len() <= PER_KEY)
        );
        let now = Micros::from_secs(100_000);
        assert_eq!(denials.of(0, now, now).len(), PER_KEY);
    }
}
