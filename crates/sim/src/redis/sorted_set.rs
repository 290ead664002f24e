//! Sorted sets: members by their score, then by their bytes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::number;

/// A score, which is never NaN.
#[derive(Clone, Copy, Debug)]
struct Score(f64);

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        // Zero equals negative zero, unlike in the total order.
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

/// A sorted set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SortedSet {
    scores: BTreeMap<Vec<u8>, f64>,
    order: BTreeSet<(Score, Vec<u8>)>,
}

impl SortedSet {
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Sets the score of a member. Returns whether it is new.
    pub(super) fn add(&mut self, member: &[u8], score: f64) -> bool {
        // Small sets of Redis know no negative zero.
        let score = score + 0.0;
        let is_new = !self.remove(member);
        self.scores.insert(member.to_vec(), score);
        self.order.insert((Score(score), member.to_vec()));
        is_new
    }

    /// Returns whether it was a member.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some((member, score)) = self.scores.remove_entry(member) else { return false };
        self.order.remove(&(Score(score), member))
    }

    /// All members in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], f64)> {
        self.order.iter().map(|(score, member)| (&**member, score.0))
    }

    /// The members in a range of scores, in their order.
    pub(super) fn range(&self, range: ScoreRange) -> impl Iterator<Item = (&[u8], f64)> {
        let members = self.order.range((Score(range.from.score), Vec::new())..);
        let members = members.map(|(score, member)| (&**member, score.0));
        members.skip_while(move |(_, score)| !range.begins_before(*score)).take_while(move |(_, score)| {
            *score < range.to.score || (*score <= range.to.score && !range.to.is_exclusive)
        })
    }
}

/// A range of scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoreRange {
    from: Bound,
    to: Bound,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    score: f64,
    is_exclusive: bool,
}

impl ScoreRange {
    /// Reads bounds, which are exclusive after `(`. `None` if one is not a number.
    pub(super) fn parse(from: &[u8], to: &[u8]) -> Option<Self> {
        Some(Self { from: Bound::parse(from)?, to: Bound::parse(to)? })
    }

    fn begins_before(&self, score: f64) -> bool {
        score > self.from.score || (score >= self.from.score && !self.from.is_exclusive)
    }
}

impl Bound {
    fn parse(text: &[u8]) -> Option<Self> {
        let exclusive = text.strip_prefix(b"(");
        // Redis reads nothing as zero.
        let score = match exclusive.unwrap_or(text) {
            b"" => 0.0,
            score => number::float(score)?,
        };
        Some(Self { score, is_exclusive: exclusive.is_some() })
    }
}
