//! Which cells of the table of combinations a run visits.

use std::collections::BTreeMap;

use super::pays;
use super::script::{BucketId, Executed, Found, Op, Shape};
use crate::coverage::{Cell, Coverage};

/// Visited cells, and what is needed to name them.
#[derive(Default)]
pub(super) struct Cells {
    /// The shape that each limit of a key had last.
    shapes: BTreeMap<(String, String), Shape>,
}

impl Cells {
    /// Counts the cell of each charge.
    pub(super) fn visit(&mut self, coverage: &mut Coverage, question: &Executed) {
        // A reservation counts the open ones of its key beside what it charges.
        let counts = |bucket: &BucketId| bucket.shape == Shape::Concurrency || pays(bucket);
        let charges = || question.charges.iter().enumerate().filter(|(_, charge)| counts(&charge.bucket));
        let mut tags: Vec<&str> = charges().map(|(_, charge)| tag(&charge.bucket)).collect();
        let count = tags.len();
        tags.sort_unstable();
        tags.dedup();
        let keys = match (tags.len(), count) {
            (1, 1) => "one",
            (1, _) => "beside",
            _ => "two",
        };
        for (at, charge) in charges() {
            let shape = charge.bucket.shape;
            let amount = match question.operation {
                Op::Settle => question.marker_amounts.get(at + 1).copied().unwrap_or(0),
                _ => charge.cost.abs(),
            };
            let cost = match amount {
                _ if shape == Shape::Concurrency => "zero",
                0 => "zero",
                _ if amount % 1_000_000 != 0 && amount < charge.limit.capacity => "fraction",
                _ if amount < charge.limit.capacity => "below",
                _ if amount == charge.limit.capacity => "equal",
                _ => "above",
            };
            let former = self.shapes.insert(limit_of(&charge.bucket), shape);
            let state = match charge.found {
                Found::Broken => "broken",
                _ if former.is_some_and(|former| former != shape) => "other shape",
                Found::Absent => "absent",
                Found::Full => "full",
                Found::Partial => "partial",
                Found::Empty => "empty",
                Found::InDebt => "in debt",
                Found::InFuture => "in future",
                Found::Tightened => "tightened",
                Found::Widened => "widened",
            };
            coverage.visit(Cell { operation: name(question), shape: shape.name(), cost, state, keys });
        }
    }
}

/// The hash tag of a bucket's key.
fn tag(bucket: &BucketId) -> &str {
    bucket.key.split_once('}').map_or("", |(tag, _)| tag)
}

/// The key and the name of the limit of a bucket of any shape.
fn limit_of(bucket: &BucketId) -> (String, String) {
    let rest = bucket.key.split_once("}:").map_or("", |(_, rest)| rest);
    let limit = match rest.strip_prefix("permits:") {
        Some(name) => name.to_owned(),
        None if bucket.name.is_empty() => rest.to_owned(),
        None => format!("{rest}/{}", bucket.name),
    };
    (tag(bucket).to_owned(), limit)
}

fn name(question: &Executed) -> &'static str {
    match question.operation {
        Op::Spend => "spend",
        Op::Peek => "peek",
        Op::SpendUpTo => "spend up to",
        Op::Charge => "charge",
        Op::Refund => match question.spent {
            None => "refund",
            Some(spent) if spent == question.at => "refund this window",
            Some(_) => "refund spent at",
        },
        Op::RefundOnce => "refund once",
        Op::Reset => "reset",
        Op::Reserve => "reserve",
        Op::Settle => "settle",
        Op::Acquire => "acquire",
        Op::Retake => "retake",
        Op::Renew => "renew",
        Op::Release => "release",
    }
}
