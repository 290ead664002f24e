//! How many events of one kind may be told in a minute, and about whom.

use std::collections::VecDeque;

use foldhash::HashSet;
use metrics::{Counter, counter};
use spile_core::Micros;

use crate::names::EVENTS_SUPPRESSED;
use crate::registrar::Registrar;

/// Each subject is told of once in this time, and the budget is for this time.
const WINDOW_US: u64 = 60_000_000;
/// The most events of one kind that are told in any window.
pub(crate) const MOST: usize = 200;
/// Subjects that are told apart among those that were left out.
const BITS: usize = 1 << 16;

/// The budget of one kind of event. It never grows beyond [`MOST`] subjects and one bit for each of [`BITS`].
///
/// Its times are those of a monotonic clock: a clock that is put right neither repeats events nor holds them back.
pub(crate) struct Budget {
    kind: &'static str,
    /// Who was told of in the last window and when, the oldest first.
    told: VecDeque<(Micros, u64)>,
    known: HashSet<u64>,
    suppressed: Suppressed,
    counter: Counter,
}

/// Who was not told of because the budget was spent.
struct Suppressed {
    /// A bit for each subject. Two that share one count as one, so that the count is never too high.
    seen: Box<[u64]>,
    count: u64,
    since: Micros,
}

impl Budget {
    pub(crate) fn new(kind: &'static str, registrar: &Registrar) -> Self {
        let counter = registrar.register(|| counter!(EVENTS_SUPPRESSED, "kind" => kind));
        // An alert sees the first one as a rise.
        counter.increment(0);
        Self {
            kind,
            told: VecDeque::new(),
            known: HashSet::default(),
            suppressed: Suppressed::new(),
            counter,
        }
    }

    pub(crate) const fn kind(&self) -> &'static str {
        self.kind
    }

    /// Whether to tell of this subject now: it was not told of in the last minute, and the budget is not spent.
    pub(crate) fn spend(&mut self, subject: u64, now: Micros) -> bool {
        self.forget(now);
        if self.known.contains(&subject) {
            return false;
        }
        if self.told.len() == MOST {
            self.counter.increment(self.suppressed.add(subject, now));
            return false;
        }
        self.told.push_back((now, subject));
        self.known.insert(subject);
        true
    }

    /// How many subjects were left out at least, once a minute; or at once if it is the `last` time.
    pub(crate) fn take_suppressed(&mut self, now: Micros, last: bool) -> Option<u64> {
        let Suppressed { count, since, .. } = self.suppressed;
        let is_due = count > 0 && (last || now.since_us(since) >= WINDOW_US);
        if is_due {
            self.suppressed = Suppressed::new();
        }
        is_due.then_some(count)
    }

    /// Forgets who was told of more than a window ago, or later than now: a clock of tests may step back.
    fn forget(&mut self, now: Micros) {
        while let Some(&(at, subject)) = self.told.front() {
            if at <= now && now.since_us(at) < WINDOW_US {
                return;
            }
            self.told.pop_front();
            self.known.remove(&subject);
        }
    }
}

impl Suppressed {
    fn new() -> Self {
        Self { seen: Box::default(), count: 0, since: Micros::new(0) }
    }

    /// Adds a subject, and says by how many that makes the count higher.
    fn add(&mut self, subject: u64, now: Micros) -> u64 {
        if self.count == 0 {
            self.seen = vec![0; BITS / 64].into();
            self.since = now;
        }
        let place = subject as usize % BITS;
        let (word, bit) = (&mut self.seen[place / 64], 1 << (place % 64));
        let more = u64::from(*word & bit == 0);
        *word |= bit;
        self.count += more;
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget::new("key_denied", &Registrar::default())
    }

    #[test]
    fn no_minute_has_more_than_the_budget_nor_a_subject_twice_however_many_there_are() {
        let mut budget = budget();
        let mut told: Vec<(u64, u64)> = Vec::new();
        for round in 0..300 {
            for subject in 0..3_000_u64 {
                let subject = subject.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                if budget.spend(subject, Micros::from_secs(round)) {
                    told.push((round, subject));
                }
            }
        }
        for began in 0..300 {
            let window = told.iter().filter(|(at, _)| (began..began + 60).contains(at));
            let subjects: HashSet<u64> = window.clone().map(|(_, subject)| *subject).collect();
            assert_eq!(window.count(), subjects.len(), "nobody twice from second {began} on");
            assert!(subjects.len() <= MOST, "{} from second {began} on", subjects.len());
        }
        assert_eq!(told.len(), 5 * MOST, "the budget is used");
        assert!(budget.told.len() <= MOST && budget.known.len() <= MOST);
    }

    #[test]
    fn those_left_out_are_counted_once_each_and_never_too_high() {
        let mut budget = budget();
        for _ in 0..5 {
            for subject in 0..20_000_u64 {
                budget.spend(subject.wrapping_mul(0x9E37_79B9_7F4A_7C15), Micros::from_secs(1));
            }
        }
        assert_eq!(budget.take_suppressed(Micros::from_secs(60), false), None, "a minute is not over");
        let left_out = budget.take_suppressed(Micros::from_secs(61), false).expect("some were left out");
        assert!((15_000..=19_800).contains(&left_out), "{left_out}");
        assert_eq!(budget.take_suppressed(Micros::from_secs(200), true), None, "they are told of once");
    }

    #[test]
    fn a_clock_that_steps_back_silences_nothing() {
        let mut budget = budget();
        assert!(budget.spend(5, Micros::from_secs(1_000)));
        assert!(!budget.spend(5, Micros::from_secs(1_059)));
        assert!(budget.spend(5, Micros::from_secs(10)));
    }
}
