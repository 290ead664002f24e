//! One charge of a rate or a quota: what its bucket has, and how a step changes it.

use super::state::Fields;
use super::types::{PlainLimit, PlainWindow, Shape, Step};
use super::wire::Charge;

/// A bucket written further ahead of the clock is rebased; a permit that ends further beyond its hold time is shortened.
pub(super) const REBASE_AFTER_US: i128 = 1_000_000;

/// An exact amount, or two adjacent ones where rounding decides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Range {
    pub(super) least: i128,
    pub(super) most: i128,
}

impl Range {
    pub(super) const fn exactly(amount: i128) -> Self {
        Self { least: amount, most: amount }
    }

    pub(super) const fn contains(self, amount: i128) -> bool {
        self.least <= amount && amount <= self.most
    }

    /// Changes it by a function that keeps the order, or turns it around.
    fn map(self, change: impl Fn(i128) -> i128) -> Self {
        let (one, other) = (change(self.least), change(self.most));
        Self { least: one.min(other), most: one.max(other) }
    }
}

/// How a question treats a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Plan {
    Take(i128),
    /// Refunds an amount that was spent at this moment, if it is known.
    Give(i128, Option<i128>),
    Late(i128),
    /// Changes nothing, but the bucket has to outlive the question.
    Ask,
    Look,
    Reset,
}

/// A bucket as a question finds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) fields: Option<Fields>,
    pub(super) available: Range,
    /// The stored time, or the one that replaces it after the clock stepped back.
    time: i128,
    is_rebased: bool,
    pub(super) window: Option<PlainWindow>,
}

/// A bucket as a question leaves it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// The two numbers in the reply.
    pub(super) amount: Range,
    pub(super) time: i128,
    pub(super) step: Step,
    pub(super) stored: Stored,
    /// The part of a late charge that no debt covers.
    pub(super) uncovered: Range,
}

/// The stored state of a bucket after a question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stored {
    /// The reported amount.
    AsReplied,
    /// Unchanged.
    AsBefore,
    Nothing,
}

impl Look {
    pub(super) fn new(charge: &Charge, fields: Option<Fields>, now: i128) -> Self {
        let window = charge.window(now);
        let full = Self {
            fields,
            available: Range::exactly(charge.limit.capacity),
            time: now,
            is_rebased: false,
            window,
        };
        match (fields, charge.limit.rate) {
            (None, _) => full,
            (Some(fields), Some(rate)) => {
                let (least, most) = rate.gained(now - fields.time);
                let capped = |gained| charge.limit.capacity.min(fields.amount + gained);
                let available = Range { least: capped(least), most: capped(most) };
                let is_rebased = fields.time - now > REBASE_AFTER_US;
                Self { available, time: if is_rebased { now } else { fields.time }, is_rebased, ..full }
            }
            (Some(fields), None) => {
                let cut = window.filter(|window| fields.time > window.next_end).map(|window| window.end);
                let time = cut.unwrap_or(fields.time);
                let used = if now < time { fields.amount.max(0) } else { 0 };
                let available = Range::exactly(charge.limit.capacity - used);
                Self { available, time, is_rebased: cut.is_some(), ..full }
            }
        }
    }

    /// How a plan leaves the bucket.
    pub(super) fn after(&self, charge: &Charge, plan: Plan, now: i128) -> Outcome {
        let limit = &charge.limit;
        let (left, step) = match plan {
            Plan::Take(cost) if cost > 0 => (self.available.map(|there| there - cost), Step::Take),
            Plan::Late(cost) if cost > 0 => {
                (self.available.map(|there| lowered(there, cost, limit)), Step::Late)
            }
            Plan::Give(cost, spent) if cost > 0 && self.takes_back(charge.shape, spent) => {
                (self.available.map(|there| (there + cost).min(limit.capacity)), Step::Give)
            }
            _ => return self.unchanged(charge, plan, now),
        };
        let uncovered = match plan {
            Plan::Late(cost) => self.available.map(|there| cost - (there - lowered(there, cost, limit))),
            _ => Range::exactly(0),
        };
        let time = self.fields.map_or(now, |_| self.time.max(now));
        let (amount, time) = match (charge.shape, self.window) {
            (Shape::Quota, Some(window)) => (left.map(|left| limit.capacity - left), time.max(window.end)),
            _ => (left, time),
        };
        Outcome { amount, time, step, stored: Stored::AsReplied, uncovered }
    }

    /// True if it was written by a clock that was ahead.
    pub(super) fn is_ahead(&self, shape: Shape, now: i128) -> bool {
        let time = self.fields.map_or(now, |fields| fields.time);
        time > if shape == Shape::Quota { self.window.map_or(time, |window| window.end) } else { now }
    }

    fn unchanged(&self, charge: &Charge, plan: Plan, now: i128) -> Outcome {
        let fields = self.fields.filter(|_| plan != Plan::Reset);
        let default = if charge.shape == Shape::Quota { 0 } else { charge.limit.capacity };
        let writes = self.is_rebased && matches!(plan, Plan::Take(_) | Plan::Ask);
        Outcome {
            amount: Range::exactly(fields.map_or(default, |fields| fields.amount)),
            time: if fields.is_some() { self.time } else { now },
            step: if plan == Plan::Reset && self.fields.is_some() { Step::Give } else { Step::None },
            stored: match fields {
                Some(_) if writes => Stored::AsReplied,
                Some(_) => Stored::AsBefore,
                None => Stored::Nothing,
            },
            uncovered: Range::exactly(0),
        }
    }

    /// A bucket that is not stored takes nothing back, and a quota nothing from another window than the one of its fields.
    fn takes_back(&self, shape: Shape, spent: Option<i128>) -> bool {
        if self.fields.is_none() || shape == Shape::Rate {
            return self.fields.is_some();
        }
        let Some(window) = self.window else { return false };
        // A clock that was slightly ahead has written one of the next window.
        let from = if self.time > window.end { window.end } else { window.start };
        spent.is_some_and(|spent| from <= spent && spent < self.time)
    }
}

/// A late charge stops at the debt. A debt that is deeper than the limit allows now is not forgiven.
fn lowered(there: i128, cost: i128, limit: &PlainLimit) -> i128 {
    (there - cost).max(there.min(-limit.debt))
}

/// The amount that replied numbers stand for.
pub(super) fn available(charge: &Charge, fields: Option<Fields>, now: i128) -> i128 {
    Look::new(charge, fields, now).available.least
}

/// How long until a bucket with these numbers is full.
pub(super) fn time_to_full(charge: &Charge, fields: Fields, now: i128) -> i128 {
    let refill = charge.limit.rate.map_or(0, |rate| rate.time_for(charge.limit.capacity - fields.amount));
    fields.time - now + refill
}
