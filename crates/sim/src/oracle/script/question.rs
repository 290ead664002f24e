//! Judges one question: what its answer has to be, given what the reply reports of its buckets.

use super::Doubts;
use super::bucket::{Look, Outcome, Plan, Range, Stored, available, time_to_full};
use super::permit::{Swept, TOKEN};
use super::reply::Replied;
use super::state::{Fields, Foreign, Lifetime, Permits, Record, ServerClock};
use super::types::{BucketId, Executed, ExecutedCharge, Found, Op, Shape, Step, Verdict};
use super::verdict::{Finding, check_amount, plans, spent};
use super::wire::{Call, Charge, Question, amounts};

/// A call while it is judged.
pub(super) struct Judgement<'c> {
    pub(super) call: &'c Call<'c>,
    pub(super) now: i128,
    pub(super) clock: &'c ServerClock,
    /// The state of each bucket of the call, as the questions so far have left it.
    pub(super) records: Vec<Record>,
    pub(super) sets: Vec<Permits>,
    pub(super) swept: Swept,
    /// True if buckets that were full for long have been forgotten here. Redis may still store them.
    pub(super) has_purged: bool,
    pub(super) doubts: Doubts,
    pub(super) foreign: &'c Foreign,
    /// Keys of a newer format that have expired.
    pub(super) read_again: Vec<String>,
}

impl Judgement<'_> {
    pub(super) fn question(
        &mut self,
        question: &Question<'_>,
        replied: &mut Replied<'_>,
    ) -> Result<Executed, String> {
        let number = replied.int()?;
        let verdict = usize::try_from(number).ok().and_then(|at| Verdict::NUMBERED.get(at)).cloned();
        let verdict = verdict.ok_or_else(|| format!("there is no verdict {number}"))?;
        if verdict == Verdict::NewerFormat {
            return self.newer(question, replied);
        }
        self.check_readable(question)?;
        let is_outside = question
            .charges
            .iter()
            .any(|charge| charge.bounds.is_some() && charge.window(self.now).is_none());
        if is_outside != (verdict == Verdict::OutsideWindows) {
            let bounds = question.charges.iter().find_map(|charge| charge.bounds);
            return Err(format!("replied {verdict:?} at {} with windows {bounds:?}", self.now));
        }
        let has_amount = question.op.has_amount() && !is_outside;
        let amount = if has_amount { replied.int()? } else { 0 };
        let marker = self.marker(question);
        let plans = plans(question, &verdict, amount, marker.as_ref(), self.now)?;
        let mut findings = Vec::with_capacity(question.charges.len());
        for (charge, plan) in question.charges.iter().zip(&plans) {
            let (first, second) = (replied.int()?, replied.int()?);
            let finding = match charge.shape {
                Shape::Concurrency => self.places(question, charge, &verdict, [first, second]),
                _ => self.bucket(charge, *plan, Fields { amount: first, time: second }),
            };
            findings.push(
                finding.map_err(|why| {
                    format!("{:?} {verdict:?}, cost {}: {why}", self.id(charge), charge.cost)
                })?,
            );
        }
        self.check_verdict(question, &verdict, &findings, marker.as_ref())?;
        check_amount(question, &verdict, amount, &findings)?;
        let settled = self.settled(question, &verdict, replied)?;
        let charges = question.charges.iter().zip(&plans).zip(findings);
        let charges =
            charges.map(|((charge, plan), finding)| self.apply(question, charge, *plan, &finding, &verdict));
        let charges = charges.collect();
        self.write_markers(question, &verdict, &settled);
        Ok(Executed {
            operation: question.op,
            verdict,
            at: self.now,
            charges,
            permit: question.permit.map(<[u8]>::to_vec),
            amount,
            settled,
            markers: question.markers.iter().map(|(bucket, _)| self.call.buckets[*bucket].clone()).collect(),
            marker_amounts: question.markers.iter().map(|(_, amount)| *amount).collect(),
            spent: spent(question, marker.as_ref(), self.now),
        })
    }

    pub(super) fn id(&self, charge: &Charge) -> &BucketId {
        match charge.shape {
            Shape::Concurrency => &self.call.sets[charge.bucket],
            _ => &self.call.buckets[charge.bucket],
        }
    }

    /// True if another writer has made the key of a charge unreadable, and nothing has repaired it.
    fn is_broken(&self, charge: &Charge) -> bool {
        self.foreign.broken.contains(&self.id(charge).key)
    }

    fn found(&self, charge: &Charge, finding: &Finding) -> Found {
        let limit = &charge.limit;
        match finding {
            _ if self.is_broken(charge) => Found::Broken,
            Finding::Bucket { look: Look { fields: None, .. }, .. } => Found::Absent,
            Finding::Bucket { look, .. } => {
                let former = self.records[charge.bucket].limit;
                let is_ahead = look.is_ahead(charge.shape, self.now);
                Found::new(limit, former.as_ref(), is_ahead, look.available.least)
            }
            Finding::Places(_, _, found) => *found,
        }
    }

    fn found_set(&self, charge: &Charge) -> Found {
        let (set, limit) = (&self.sets[charge.bucket], &charge.limit);
        match set.certain.values().chain(set.possible.values()).max() {
            None => Found::Absent,
            Some(last) => {
                let is_ahead = *last > self.now + limit.hold;
                Found::new(limit, set.limit.as_ref(), is_ahead, set.free(charge, self.now))
            }
        }
    }

    /// Buckets of a newer format are read by no question.
    fn check_readable(&mut self, question: &Question<'_>) -> Result<(), String> {
        let hashes = question.charges.iter().filter(|charge| charge.shape != Shape::Concurrency);
        for charge in hashes {
            let id = self.id(charge);
            if !self.foreign.newer.contains(&id.key) || self.read_again.contains(&id.key) {
                continue;
            }
            if !self.records[charge.bucket].may_be_gone(self.clock) {
                return Err(format!("{id:?} was written by a newer version and was read"));
            }
            self.read_again.push(id.key.clone());
        }
        Ok(())
    }

    /// A question about a bucket of a newer format changes nothing, though permits that ended or end late may be removed or
    /// shortened.
    fn newer(&mut self, question: &Question<'_>, replied: &mut Replied<'_>) -> Result<Executed, String> {
        let hashes = question.charges.iter().filter(|charge| charge.shape != Shape::Concurrency);
        let mut keys = hashes
            .map(|charge| &self.id(charge).key)
            .chain(question.markers.iter().map(|(bucket, _)| &self.call.buckets[*bucket].key));
        if !keys.any(|key| self.foreign.newer.contains(key)) {
            return Err("no bucket of the question was written by a newer version".to_owned());
        }
        for charge in &question.charges {
            replied.int()?;
            replied.int()?;
            if charge.shape == Shape::Concurrency && question.op.takes_permit() {
                let set = &mut self.sets[charge.bucket];
                set.doubt_if_over(self.clock);
                set.sweep(self.now, self.doubts.hides_expired, &mut self.swept);
                set.doubt_late(charge, self.now);
            }
        }
        Ok(self.unchanged(question, Verdict::NewerFormat))
    }

    fn places(
        &mut self,
        question: &Question<'_>,
        charge: &Charge,
        verdict: &Verdict,
        [free, time]: [i128; 2],
    ) -> Result<Finding, String> {
        if time != self.now {
            return Err(format!("expected time {}, replied {time}", self.now));
        }
        let found = self.found_set(charge);
        let set = &mut self.sets[charge.bucket];
        set.doubt_if_over(self.clock);
        if question.op.takes_permit() {
            set.sweep(self.now, self.doubts.hides_expired, &mut self.swept);
        }
        let places = set.look(charge, question.op, question.permit, verdict, free, self.now)?;
        if question.op.takes_permit() {
            set.shorten_if_full(charge, &places, self.now);
        }
        Ok(Finding::Places(places, set.free(charge, self.now), found))
    }

    /// Finds a state of the bucket with which the plan gives the replied numbers.
    fn bucket(&self, charge: &Charge, plan: Plan, replied: Fields) -> Result<Finding, String> {
        let record = &self.records[charge.bucket];
        let found = |fields| {
            let look = Look::new(charge, fields, self.now);
            let outcome = look.after(charge, plan, self.now);
            (look, outcome)
        };
        let fits =
            |outcome: &Outcome| outcome.amount.contains(replied.amount) && outcome.time == replied.time;
        let is_adopted = record.is_uncertain || self.doubts.has_revived && record.fields.is_none();
        let gone = (is_adopted || record.may_be_gone(self.clock))
            .then(|| found(None))
            .filter(|(_, outcome)| fits(outcome));
        let (look, outcome) = found(record.fields);
        if fits(&outcome) {
            let may_be_gone = gone.is_some_and(|(_, outcome)| outcome.stored == Stored::Nothing);
            let other = gone.map(|(_, outcome)| outcome.uncovered);
            return Ok(Finding::Bucket { look, outcome, is_adopted, may_be_gone, other, replied });
        }
        if let Some((look, outcome)) = gone {
            return Ok(Finding::Bucket {
                look,
                outcome,
                is_adopted,
                may_be_gone: false,
                other: None,
                replied,
            });
        }
        // A bucket that is full again may still be stored, and counts as if it was not.
        let is_full = || available(charge, Some(replied), self.now) == charge.limit.capacity;
        if is_adopted || self.has_purged && record.fields.is_none() && is_full() {
            let (look, outcome) = found(Some(replied));
            let outcome = Outcome { stored: Stored::AsReplied, ..outcome };
            return Ok(Finding::Bucket {
                look,
                outcome,
                is_adopted,
                may_be_gone: false,
                other: None,
                replied,
            });
        }
        let Range { least, most } = outcome.amount;
        let amount = if least == most { least.to_string() } else { format!("{least} or {most}") };
        Err(format!(
            "expected {amount} at {} after {plan:?} of {:?} at {}, replied {} at {}",
            outcome.time, record.fields, self.now, replied.amount, replied.time
        ))
    }

    /// The replied amounts of a settled reservation.
    fn settled(
        &self,
        question: &Question<'_>,
        verdict: &Verdict,
        replied: &mut Replied<'_>,
    ) -> Result<Vec<i128>, String> {
        if question.op != Op::Settle || !matches!(verdict, Verdict::Done | Verdict::Before) {
            return Ok(Vec::new());
        }
        let is_uncertain = self.records[question.markers[0].0].is_uncertain;
        let mut amounts = amounts(replied.text()?)?.into_iter();
        let mut settled = Vec::with_capacity(question.markers.len());
        for (bucket, amount) in &question.markers[1..] {
            let stored = || self.records[*bucket].fields.map_or(0, |fields| fields.amount.max(0));
            let expected = if *verdict == Verdict::Done { *amount } else { stored() };
            let number = amounts.next().unwrap_or(0);
            if number != expected && !is_uncertain && !self.records[*bucket].is_uncertain {
                let marker = &self.call.buckets[*bucket];
                return Err(format!("expected {expected} as settled by {marker:?}, replied {number}"));
            }
            settled.push(number);
        }
        Ok(settled)
    }

    fn apply(
        &mut self,
        question: &Question<'_>,
        charge: &Charge,
        plan: Plan,
        finding: &Finding,
        verdict: &Verdict,
    ) -> ExecutedCharge {
        let limit = charge.limit;
        let found = self.found(charge, finding);
        let executed = |bucket: &BucketId, before, after, step, window| ExecutedCharge {
            bucket: bucket.clone(),
            limit,
            cost: charge.cost,
            found,
            before,
            after,
            step,
            window,
        };
        match *finding {
            Finding::Places(places, before, _) => {
                let set = &mut self.sets[charge.bucket];
                set.limit = Some(limit);
                let step = if *verdict == Verdict::Done {
                    set.apply(charge, question.op, question.permit, &places, self.now, self.clock)
                } else {
                    if let (Op::Release, Verdict::Denied, Some(permit)) =
                        (question.op, verdict, question.permit)
                    {
                        set.forget_live(permit, self.now);
                    }
                    Step::None
                };
                let after = set.free(charge, self.now);
                let before = match step {
                    Step::Take => (after + TOKEN).min(limit.capacity),
                    Step::None => after,
                    Step::Give | Step::Late => before.min(after),
                };
                executed(&self.call.sets[charge.bucket], before, after, step, None)
            }
            Finding::Bucket { look, outcome, is_adopted, may_be_gone, other, replied } => {
                let stored = match outcome.stored {
                    Stored::AsReplied => Some(replied),
                    Stored::AsBefore => look.fields,
                    Stored::Nothing => None,
                };
                if other.is_some() {
                    // Redis may have forgotten it, and keeps what it was given now no longer than that needs.
                    self.records[charge.bucket].lifetime = Lifetime::NONE;
                }
                self.remember(charge, plan, look.fields, stored);
                // A full bucket may be stored or not, and the replied time of one that only was looked at need not be stored.
                let tells = matches!(plan, Plan::Take(_) | Plan::Ask | Plan::Late(1..))
                    && stored.is_some()
                    && !may_be_gone;
                self.records[charge.bucket].is_uncertain = is_adopted && !tells && plan != Plan::Reset;
                if may_be_gone {
                    self.records[charge.bucket].lifetime = Lifetime::NONE;
                }
                let after = available(charge, Some(replied), self.now);
                let before = match plan {
                    Plan::Take(cost) if outcome.step == Step::Take => after + cost,
                    _ => look.available.least,
                };
                executed(&self.call.buckets[charge.bucket], before, after, outcome.step, look.window)
            }
        }
    }

    /// Remembers what a bucket stores, and for how long.
    fn remember(&mut self, charge: &Charge, plan: Plan, found: Option<Fields>, stored: Option<Fields>) {
        let (clock, now) = (self.clock, self.now);
        let record = &mut self.records[charge.bucket];
        if record.fields != found || stored.is_none() {
            // It was forgotten in time, or is not stored any more.
            *record = Record { limit: record.limit, ..Record::ABSENT };
        }
        record.fields = stored;
        record.is_uncertain = false;
        record.limit = Some(charge.limit);
        if let (Some(stored), false) = (stored, matches!(plan, Plan::Look | Plan::Reset)) {
            record.lifetime.extend(time_to_full(charge, stored, now), clock);
        }
    }
}
