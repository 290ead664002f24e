//! One charge of a concurrency: how many places are free, and who holds them.

use std::collections::BTreeMap;

use super::bucket::{REBASE_AFTER_US, Range};
use super::state::{Lifetime, Permits, ServerClock};
use super::types::{Op, Step, Verdict};
use super::wire::Charge;

/// Micro-tokens per permit.
pub(super) const TOKEN: i128 = 1_000_000;

/// A set of permits as a question finds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// The free places, of which a permit that is retaken has one.
    pub(super) available: Range,
    /// True if the permit of the question is held for certain.
    pub(super) is_held: bool,
    /// True if it may be held.
    pub(super) may_be_held: bool,
    /// Whether all places are taken. `None` if that does not show.
    is_full: Option<bool>,
}

/// How many ended permits a call removes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Swept {
    pub(super) least: i128,
    pub(super) most: i128,
}

impl Permits {
    /// Removes ended permits, as each step does that takes one.
    pub(super) fn sweep(&mut self, now: i128, hides_expired: bool, swept: &mut Swept) {
        let before = (self.certain.len(), self.possible.len());
        self.certain.retain(|_, end| *end > now);
        // A hidden set keeps its permits.
        self.possible.retain(|_, end| hides_expired || *end > now);
        let certain = (before.0 - self.certain.len()) as i128;
        swept.least += certain;
        let ended = self.possible.values().filter(|end| **end <= now).count();
        let possible = if self.has_unknown_ends { before.1 } else { before.1 - self.possible.len() + ended };
        swept.most += certain + possible as i128;
    }

    /// Looks at the set by the number of free places that the reply reports, which settles what is only possible.
    pub(super) fn look(
        &mut self,
        charge: &Charge,
        op: Op,
        permit: Option<&[u8]>,
        verdict: &Verdict,
        replied: i128,
        now: i128,
    ) -> Result<Places, String> {
        let capacity = charge.limit.capacity;
        let ends = |permits: &BTreeMap<Vec<u8>, i128>| {
            permit.is_some_and(|permit| permits.get(permit).is_some_and(|end| *end > now))
        };
        let known = op.has_permit() && op != Op::Acquire;
        let is_held = known && ends(&self.certain);
        let may_be_held = is_held || known && ends(&self.possible);
        let done = *verdict == Verdict::Done;
        let expected =
            |expected: &str| format!("expected {expected} free places in micro-tokens, replied {replied}");
        if matches!(op, Op::Renew | Op::Release) || op == Op::Reset && done {
            let places =
                Places { available: Range::exactly(capacity), is_held, may_be_held, is_full: Some(false) };
            return if replied == capacity { Ok(places) } else { Err(expected(&capacity.to_string())) };
        }
        let (held, possible) = self.held(now);
        let free = |held: i128| (capacity - held * TOKEN).max(0);
        let range = Range { least: free(held + possible), most: free(held) };
        // The reported places, without the permit that was taken and the one that was held.
        let taken = if op.takes_permit() && done { TOKEN } else { 0 };
        let own = |held: bool| if op == Op::Retake && held { TOKEN } else { 0 };
        let fits = |held: &bool| {
            let base = replied + taken - own(*held);
            range.contains(base) && base % TOKEN == 0
        };
        let is_ambiguous = is_held != may_be_held && fits(&false) && fits(&true);
        let Some(is_held) = [is_held, may_be_held].into_iter().find(fits) else {
            let shift = own(is_held) - taken;
            let numbers = if range.least == range.most {
                (range.least + shift).to_string()
            } else {
                format!("{} to {}", range.least + shift, range.most + shift)
            };
            return Err(expected(&numbers));
        };
        let base = replied + taken - own(is_held);
        if !is_ambiguous && !self.has_unknown_ends {
            self.settle_doubts(held, possible, free(held + possible), base, capacity, now);
        }
        let available = Range::exactly(base + own(is_held));
        Ok(Places {
            available,
            is_held,
            may_be_held: is_held || may_be_held && op != Op::Retake,
            is_full: if is_ambiguous && (base == 0 || base == own(true)) { None } else { Some(base == 0) },
        })
    }

    /// The free places that are certain.
    pub(super) fn free(&self, charge: &Charge, now: i128) -> i128 {
        (charge.limit.capacity - self.held(now).0 * TOKEN).max(0)
    }

    /// Marks what a refused question may have written or removed.
    pub(super) fn doubt(&mut self, charge: &Charge, op: Op, permit: Option<&[u8]>, wrote: bool, now: i128) {
        if op.takes_permit() {
            // Ended permits may have been removed and late ones shortened, which is not counted as a write.
            self.doubt_late(charge, now);
            self.has_unknown_ends |= !self.possible.is_empty();
        }
        if op == Op::Reset && wrote {
            self.possible.append(&mut self.certain);
        }
        let Some(permit) = permit.filter(|_| wrote) else { return };
        // The time to live may have been refused.
        self.lifetime = Lifetime::NONE;
        let former = self.certain.remove(permit).or(self.possible.get(permit).copied());
        let end = if op == Op::Release { former } else { former.max(Some(now + charge.limit.hold)) };
        if let Some(end) = end {
            self.possible.insert(permit.to_vec(), end);
            self.has_unknown_ends = true;
        }
    }

    /// Ends a possible permit that a question did not find held. It may have ended earlier than is known, and wait for a sweep.
    pub(super) fn forget_live(&mut self, permit: &[u8], now: i128) {
        if let Some(end) = self.possible.get_mut(permit) {
            *end = now.min(*end);
        }
    }

    /// Makes possible permits certain, or forgets them, if their number shows.
    fn settle_doubts(
        &mut self,
        held: i128,
        possible: i128,
        all: i128,
        base: i128,
        capacity: i128,
        now: i128,
    ) {
        if possible == 0 || base == 0 && (held + possible) * TOKEN > capacity {
            return;
        }
        if base == capacity - held * TOKEN {
            self.possible.retain(|_, end| *end <= now);
        } else if base == all {
            let (live, ended) =
                std::mem::take(&mut self.possible).into_iter().partition(|(_, end)| *end > now);
            self.possible = ended;
            let mut live: BTreeMap<_, _> = live;
            self.certain.append(&mut live);
        }
    }

    /// Ends permits on time if the clock has stepped back while all places are taken.
    pub(super) fn shorten_if_full(&mut self, charge: &Charge, places: &Places, now: i128) {
        match places.is_full {
            Some(false) => {}
            Some(true) => {
                let late = |id: &[u8], end: i128| end > latest(id, charge, now) + REBASE_AFTER_US;
                for (id, end) in self.certain.iter_mut().filter(|(id, end)| late(id, **end)) {
                    *end = latest(id, charge, now);
                }
                // One that was shortened before ends later than that if it was not late.
                let more = if self.has_unknown_ends { REBASE_AFTER_US } else { 0 };
                for (id, end) in self.possible.iter_mut().filter(|(id, end)| late(id, **end)) {
                    *end = latest(id, charge, now) + more;
                }
            }
            None => self.doubt_late(charge, now),
        }
    }

    /// Makes permits only possible that have ended, or may have been shortened because they end too late.
    pub(super) fn doubt_late(&mut self, charge: &Charge, now: i128) {
        let is_late = |id: &[u8], end: i128| end > latest(id, charge, now) + REBASE_AFTER_US;
        let (known, mut doubted): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.certain)
            .into_iter()
            .partition(|(id, end)| now < *end && !is_late(id, *end));
        self.certain = known;
        self.possible.append(&mut doubted);
        self.has_unknown_ends |= self.possible.iter().any(|(id, end)| is_late(id, *end));
    }

    /// Takes, keeps or releases the permit of a question that was done.
    pub(super) fn apply(
        &mut self,
        charge: &Charge,
        op: Op,
        permit: Option<&[u8]>,
        places: &Places,
        now: i128,
        clock: &ServerClock,
    ) -> Step {
        match (op, permit) {
            (Op::Acquire | Op::Retake | Op::Renew, Some(permit)) => {
                self.store(permit, now + charge.limit.hold, now, clock);
                if op == Op::Renew || places.is_held { Step::None } else { Step::Take }
            }
            (Op::Release, Some(permit)) => {
                // A place that has ended is left to the next sweep.
                for permits in [&mut self.certain, &mut self.possible] {
                    if permits.get(permit).is_some_and(|end| *end > now) {
                        permits.remove(permit);
                    }
                }
                if places.may_be_held { Step::Give } else { Step::None }
            }
            (Op::Reset, _) => {
                *self = Self::EMPTY;
                Step::Give
            }
            _ => Step::None,
        }
    }
}

/// The latest end of a permit: by the hold time of its limit, or by its own, which two digits of its id have as a power of two.
fn latest(id: &[u8], charge: &Charge, now: i128) -> i128 {
    let digits = id.get(12..14).and_then(|digits| std::str::from_utf8(digits).ok());
    let power = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0).min(27);
    now + charge.limit.hold.max((1_i128 << power) * 1_000)
}
