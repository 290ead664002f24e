//! Limits how many events of one kind are emitted per minute, and how often about the same subject: once a minute, or once in the
//! window of a quota.

use std::collections::VecDeque;

use foldhash::{HashMap, HashSet};
use metrics::{Counter, counter};
use spile_core::{Micros, Window};

use crate::metrics::{EVENTS_SUPPRESSED, Registrar};

/// The limit is per window, and within a window each subject has at most one event.
const WINDOW_US: u64 = 60_000_000;
/// The most events of one kind in any window.
pub(crate) const MAX_EVENTS: usize = 200;
/// The size of the bitmap that counts suppressed subjects.
const BITS: usize = 1 << 16;

/// How many subjects are remembered that had an event in the window of a quota. Those beyond may have one each minute.
const MAX_WINDOWS: usize = 1 << 16;

/// How many events of one kind are emitted. Its memory is bounded by [`MAX_EVENTS`] and [`MAX_WINDOWS`] subjects and [`BITS`] bits.
///
/// It uses a monotonic clock, so that setting the wall clock neither repeats nor suppresses events.
pub(crate) struct EmissionLimit {
    kind: &'static str,
    /// The subjects that had an event in the last window, and when. The oldest is first.
    recent: VecDeque<(Micros, u64)>,
    recent_subjects: HashSet<u64>,
    /// The subjects that had an event in the window of a quota, and when that window ends.
    windows: HashMap<u64, Micros>,
    suppressed: Suppressed,
    counter: Counter,
}

/// The subjects that had no event because the limit was reached.
struct Suppressed {
    /// One bit for each subject. Two subjects that share a bit count as one, so that the count is never too high.
    bitmap: Box<[u64]>,
    count: u64,
    since: Micros,
}

impl EmissionLimit {
    pub(crate) fn new(kind: &'static str, registrar: &Registrar) -> Self {
        let counter = registrar.register(|| counter!(EVENTS_SUPPRESSED, "kind" => kind));
        // The series exists from the start, so that an alert sees the first suppressed event as a rise.
        counter.increment(0);
        Self {
            kind,
            recent: VecDeque::new(),
            recent_subjects: HashSet::default(),
            windows: HashMap::default(),
            suppressed: Suppressed::new(),
            counter,
        }
    }

    pub(crate) const fn kind(&self) -> &'static str {
        self.kind
    }

    /// Whether to emit an event for this subject now. True if it had none in the last minute and the limit is not
    /// reached.
    pub(crate) fn spend(&mut self, subject: u64, now: Micros) -> bool {
        self.expire(now);
        if self.recent_subjects.contains(&subject) {
            return false;
        }
        if self.recent.len() == MAX_EVENTS {
            self.counter.increment(self.suppressed.add(subject, now));
            return false;
        }
        self.recent.push_back((now, subject));
        self.recent_subjects.insert(subject);
        true
    }

    /// Like [`spend`](Self::spend), but true only if the subject had no event in this window of a quota, by the clock that decided.
    pub(crate) fn spend_in(&mut self, window: Window, subject: u64, now: Micros) -> bool {
        if self.windows.get(&subject) == Some(&window.end) || !self.spend(subject, now) {
            return false;
        }
        if self.windows.len() >= MAX_WINDOWS {
            self.windows.retain(|_, end| *end > window.start);
        }
        if self.windows.len() < MAX_WINDOWS {
            self.windows.insert(subject, window.end);
        }
        true
    }

    /// A lower bound on the number of suppressed subjects. Reported once a minute, or immediately if this is the `last` call.
    pub(crate) fn take_suppressed(&mut self, now: Micros, last: bool) -> Option<u64> {
        let Suppressed { count, since, .. } = self.suppressed;
        let is_due = count > 0 && (last || now.since_us(since) >= WINDOW_US);
        if is_due {
            self.suppressed = Suppressed::new();
        }
        is_due.then_some(count)
    }

    /// Removes subjects whose event is older than a window, or in the future: the clock of a test may step back.
    fn expire(&mut self, now: Micros) {
        while let Some(&(at, subject)) = self.recent.front() {
            if at <= now && now.since_us(at) < WINDOW_US {
                return;
            }
            self.recent.pop_front();
            self.recent_subjects.remove(&subject);
        }
    }
}

impl Suppressed {
    fn new() -> Self {
        Self { bitmap: Box::default(), count: 0, since: Micros::new(0) }
    }

    /// Adds a subject. Returns by how much the count grew: 0 or 1.
    fn add(&mut self, subject: u64, now: Micros) -> u64 {
        if self.count == 0 {
            self.bitmap = vec![0; BITS / 64].into();
            self.since = now;
        }
        let place = subject as usize % BITS;
        let (word, bit) = (&mut self.bitmap[place / 64], 1 << (place % 64));
        let more = u64::from(*word & bit == 0);
        *word |= bit;
        self.count += more;
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emission_limit() -> EmissionLimit {
        EmissionLimit::new("key_denied", &Registrar::default())
    }

    #[test]
    fn no_minute_has_more_than_the_limit_nor_a_subject_twice_however_many_there_are() {
        let mut limit = emission_limit();
        let mut recent: Vec<(u64, u64)> = Vec::new();
        for round in 0..300 {
            for subject in 0..3_000_u64 {
                let subject = subject.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                if limit.spend(subject, Micros::from_secs(round)) {
                    recent.push((round, subject));
                }
            }
        }
        for began in 0..300 {
            let window = recent.iter().filter(|(at, _)| (began..began + 60).contains(at));
            let subjects: HashSet<u64> = window.clone().map(|(_, subject)| *subject).collect();
            assert_eq!(window.count(), subjects.len(), "nobody twice from second {began} on");
            assert!(subjects.len() <= MAX_EVENTS, "{} from second {began} on", subjects.len());
        }
        assert_eq!(recent.len(), 5 * MAX_EVENTS, "all of it is used");
        assert!(limit.recent.len() <= MAX_EVENTS && limit.recent_subjects.len() <= MAX_EVENTS);
    }

    #[test]
    fn a_subject_has_one_event_in_each_window_and_those_that_are_remembered_are_bounded() {
        let mut limit = emission_limit();
        let day = |day: u64| Window {
            start: Micros::from_secs(day * 86_400),
            end: Micros::from_secs((day + 1) * 86_400),
        };
        for minute in 0..3 * 1_440 {
            let emits = limit.spend_in(day(minute / 1_440), 5, Micros::from_secs(60 * minute));
            assert_eq!(emits, minute.is_multiple_of(1_440), "minute {minute}");
        }
        for subject in 0..MAX_WINDOWS as u64 + 9 {
            limit.recent.clear();
            limit.recent_subjects.clear();
            assert!(limit.spend_in(day(3), subject, Micros::from_secs(subject)), "{subject}");
        }
        assert_eq!(limit.windows.len(), MAX_WINDOWS);
        limit.recent.clear();
        limit.recent_subjects.clear();
        assert!(limit.spend_in(day(4), u64::MAX, Micros::from_secs(1_000_000)));
        assert_eq!(limit.windows.len(), 1, "windows that are over are forgotten");
    }

    #[test]
    fn those_left_out_are_counted_once_each_and_never_too_high() {
        let mut limit = emission_limit();
        for _ in 0..5 {
            for subject in 0..20_000_u64 {
                limit.spend(subject.wrapping_mul(0x9E37_79B9_7F4A_7C15), Micros::from_secs(1));
            }
        }
        assert_eq!(limit.take_suppressed(Micros::from_secs(60), false), None, "a minute is not over");
        let left_out = limit.take_suppressed(Micros::from_secs(61), false).expect("some were left out");
        assert!((15_000..=19_800).contains(&left_out), "{left_out}");
        assert_eq!(limit.take_suppressed(Micros::from_secs(200), true), None, "they are told of once");
    }

    #[test]
    fn a_clock_that_steps_back_silences_nothing() {
        let mut limit = emission_limit();
        assert!(limit.spend(5, Micros::from_secs(1_000)));
        assert!(!limit.spend(5, Micros::from_secs(1_059)));
        assert!(limit.spend(5, Micros::from_secs(10)));
    }
}
