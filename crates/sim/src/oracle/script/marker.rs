//! Markers: refunds that were given once, and reservations.

use super::question::Judgement;
use super::state::{Fields, Record};
use super::types::{Op, Verdict};
use super::wire::Question;

/// How long a marker is kept after a refund, or after the time to settle.
const MARKER_US: i128 = 3_600_000_000;

/// The marker of a question as the question finds it.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate fact about one marker")]
pub(super) struct MarkerLook {
    /// True if it may be stored and count.
    pub(super) may_be_live: bool,
    /// True if it may be absent or over.
    pub(super) may_be_absent: bool,
    is_uncertain: bool,
    /// Whether the reservation was settled.
    is_settled: bool,
    /// Whether the time to settle it is over.
    is_late: bool,
    /// When the reservation was made.
    pub(super) made: Option<i128>,
}

impl MarkerLook {
    /// Whether settling may have this answer.
    pub(super) fn may_be_settled_as(&self, verdict: &Verdict) -> bool {
        if self.is_uncertain {
            return true;
        }
        match verdict {
            Verdict::Unknown => self.may_be_absent,
            Verdict::Before => self.may_be_live && self.is_settled,
            Verdict::Expired => self.may_be_live && !self.is_settled && self.is_late,
            Verdict::Done => self.may_be_live && !self.is_settled && !self.is_late,
            _ => false,
        }
    }
}

impl Judgement<'_> {
    pub(super) fn marker(&self, question: &Question<'_>) -> Option<MarkerLook> {
        let (bucket, _) = question.markers.first()?;
        let record = &self.records[*bucket];
        let live = record.fields.filter(|fields| self.now < fields.time);
        let ends = live.map(|fields| fields.time - MARKER_US);
        Some(MarkerLook {
            may_be_live: live.is_some() || record.is_uncertain,
            may_be_absent: live.is_none() || record.is_uncertain || record.may_be_gone(self.clock),
            is_uncertain: record.is_uncertain,
            is_settled: live.is_some_and(|fields| fields.amount == 0),
            is_late: ends.is_some_and(|ends| self.now >= ends),
            made: ends.zip(live).map(|(ends, fields)| ends - fields.amount),
        })
    }

    /// Writes the markers of a question that was done.
    pub(super) fn write_markers(&mut self, question: &Question<'_>, verdict: &Verdict, settled: &[i128]) {
        let Some((first, amount)) = question.markers.first().copied() else { return };
        let now = self.now;
        match (question.op, verdict) {
            (Op::RefundOnce, Verdict::Done) => {
                self.write_marker(first, Fields { amount, time: now + MARKER_US });
            }
            (Op::Reserve, Verdict::Done) => {
                self.write_marker(first, Fields { amount, time: now + amount + MARKER_US });
            }
            (Op::Settle, Verdict::Done) => self.write_settled(question, settled),
            (Op::Settle, Verdict::Before) if self.records[first].is_uncertain => {
                self.write_settled(question, settled);
            }
            // It was live and is gone, and with it its amounts.
            (Op::Settle, Verdict::Unknown)
                if self.records[first].fields.is_some_and(|fields| now < fields.time) =>
            {
                for (bucket, _) in &question.markers {
                    self.records[*bucket] = Record::ABSENT;
                }
            }
            (Op::Settle, Verdict::Expired | Verdict::Unknown) => self.records[first].is_uncertain = false,
            _ => {}
        }
    }

    /// Turns a reservation into a tombstone, which lives as long.
    fn write_settled(&mut self, question: &Question<'_>, settled: &[i128]) {
        let made = self.records[question.markers[0].0];
        let time = made.fields.map_or(self.now, |fields| fields.time);
        for ((bucket, _), amount) in question.markers.iter().zip(std::iter::once(&0).chain(settled)) {
            let fields = Some(Fields { amount: *amount, time });
            self.records[*bucket] = Record { fields, is_uncertain: false, ..made };
        }
    }

    /// Marks what a refused question may have written.
    pub(super) fn doubt_markers(&mut self, question: &Question<'_>) {
        let Some((first, amount)) = question.markers.first().copied() else { return };
        let time = self.now + MARKER_US + if question.op == Op::Reserve { amount } else { 0 };
        if question.op != Op::Settle
            && self.records[first].fields.is_none_or(|fields| fields.time <= self.now)
        {
            self.write_marker(first, Fields { amount, time });
        }
        for (bucket, _) in &question.markers {
            self.records[*bucket].is_uncertain = true;
        }
    }

    fn write_marker(&mut self, bucket: usize, fields: Fields) {
        let record = &mut self.records[bucket];
        *record = Record { fields: Some(fields), ..Record::ABSENT };
        record.lifetime.extend(fields.time - self.now, self.clock);
    }
}
