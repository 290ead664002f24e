//! A quota admits no more than its capacity in one window of the store's clock.

use std::collections::{BTreeMap, BTreeSet};

use spile_core::Decision;

use super::script::{BucketId, Shape};
use super::{Asked, Broken, is_charged};
use crate::fleet::report::Owed;
use crate::redis::slot_of;
use crate::scenario::{Fault, LimitSpec, PLAN_NAMES, Scenario, WindowSpec};

const SECOND_US: u64 = 1_000_000;

pub(crate) struct Quotas {
    /// The window and the largest capacity of each bucket, by plan and position.
    limits: BTreeMap<(String, usize), (WindowSpec, i64)>,
    admitted: BTreeMap<(BucketId, u64), i128>,
    /// The windows that each decision or reservation was charged in.
    spent: BTreeMap<u64, Vec<(BucketId, u64, i64)>>,
    /// The settled amount is the least of all attempts.
    settled: BTreeMap<u64, Vec<i64>>,
    refunded: BTreeSet<u64>,
    /// Buckets that a reset or a refund made full.
    reset: BTreeSet<BucketId>,
    is_cluster: bool,
    is_off: bool,
}

impl Quotas {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let mut limits = BTreeMap::new();
        for (plan, name) in scenario.plans.iter().zip(PLAN_NAMES) {
            let most = plan.versions.iter().map(Vec::len).max().unwrap_or(0);
            for position in 0..most {
                let quotas = plan.versions.iter().filter_map(|version| match version.get(position) {
                    Some(LimitSpec::Quota { capacity, window, .. }) => Some((*window, *capacity)),
                    _ => None,
                });
                let quotas: Vec<_> = quotas.collect();
                let Some((window, _)) = quotas.first().copied() else { continue };
                // The usage of a window is kept under another one only as far as both overlap.
                if quotas.iter().all(|(other, _)| *other == window) {
                    let capacity = quotas.iter().map(|(_, capacity)| *capacity).max().unwrap_or(0);
                    limits.insert((name.to_owned(), position), (window, capacity));
                }
            }
        }
        Self {
            limits,
            admitted: BTreeMap::new(),
            spent: BTreeMap::new(),
            settled: BTreeMap::new(),
            refunded: BTreeSet::new(),
            reset: BTreeSet::new(),
            is_cluster: scenario.fleet.nodes > 1,
            is_off: false,
        }
    }

    pub(crate) fn failed(&mut self, fault: Fault) {
        // Lost data, and windows that come twice.
        self.is_off |= fault.loses_state();
    }

    /// The window that holds a moment, and the capacity. `None` if the bucket is not judged.
    fn window(&self, bucket: &BucketId, at_us: u64) -> Option<(u64, i64)> {
        if bucket.shape != Shape::Quota || self.reset.contains(bucket) {
            return None;
        }
        let plan = bucket.key.rsplit(':').next()?;
        let position = match bucket.name.as_str() {
            "" => 0,
            name => usize::from(name.as_bytes()[0] - b'a'),
        };
        let (window, capacity) = self.limits.get(&(plan.to_owned(), position))?;
        let (length, ahead) = match window {
            WindowSpec::Minute => (60, 0),
            WindowSpec::Hour => (3_600, 0),
            WindowSpec::Day => (86_400, 0),
            // All runs are in summer.
            WindowSpec::DayInNewYork => (86_400, 4 * 3_600),
        };
        Some(((at_us - ahead * SECOND_US) / (length * SECOND_US), *capacity))
    }

    pub(crate) fn resets(&mut self, charges: &[Owed]) {
        self.reset.extend(charges.iter().map(|owed| owed.bucket.clone()));
    }

    pub(crate) fn decided(&mut self, number: u64, asked: &Asked, decision: &Decision) -> Result<(), Broken> {
        let slot = |owed: &Owed| slot_of(owed.bucket.key.as_bytes());
        // Of several slots only the earliest time is known, also of one node.
        let is_split =
            self.is_cluster && asked.charges.iter().any(|owed| slot(owed) != slot(&asked.charges[0]));
        if !is_charged(decision) || self.is_off || is_split {
            return Ok(());
        }
        for (owed, status) in asked.charges.iter().zip(decision.limits()) {
            let Some((window, capacity)) = self.window(&owed.bucket, status.at().get()) else { continue };
            let place = (owed.bucket.clone(), window);
            let admitted = self.admitted.entry(place).or_default();
            *admitted += i128::from(owed.cost);
            let spent = self.spent.entry(number).or_default();
            spent.push((owed.bucket.clone(), window, owed.cost));
            if *admitted > i128::from(capacity) {
                let what = format!("{:?} admitted {admitted} of {capacity} in window {window}", owed.bucket);
                return Err(Broken::new("quota", what));
            }
        }
        Ok(())
    }

    pub(crate) fn refunds(&mut self, spent: u64, charges: &[Owed]) {
        if !self.refunded.insert(spent) {
            return;
        }
        let windows = self.spent.get(&spent).cloned().unwrap_or_default();
        for (bucket, window, cost) in windows {
            if charges.iter().any(|owed| owed.bucket == bucket) {
                *self.admitted.entry((bucket, window)).or_default() -= i128::from(cost);
            }
        }
    }

    pub(crate) fn settles(&mut self, reservation: u64, amounts: &[i64]) {
        let windows = self.spent.get(&reservation).cloned().unwrap_or_default();
        let least = amounts.iter().copied().min().unwrap_or(0);
        for (bucket, window, cost) in windows {
            let before = self.settled.get(&reservation).and_then(|settled| settled.first()).copied();
            let before = before.unwrap_or(cost).min(cost);
            if least < before {
                *self.admitted.entry((bucket, window)).or_default() -= i128::from(before - least);
            }
        }
        let lowest = self.settled.entry(reservation).or_insert_with(|| vec![least]);
        lowest[0] = lowest[0].min(least);
    }
}
