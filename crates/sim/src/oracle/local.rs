//! The policy `local`: each instance admits no more than its share of each limit.

use std::collections::BTreeMap;

use spile_core::{Decision, DecisionSource};

use super::script::{BucketId, Shape};
use super::{Asked, Broken};
use crate::fleet::report::Report;
use crate::scenario::Scenario;
use crate::scheduler::{MS, Nanos, US};

/// Micro-tokens that roundings may add.
const ROUNDING: f64 = 2.0;

pub(crate) struct Local {
    replicas: i64,
    /// The rates of each instance.
    levels: BTreeMap<(usize, BucketId), Level>,
}

/// The most that a bucket may hold, under the limit that was last asked with.
struct Level {
    amount: f64,
    at: Nanos,
    capacity: f64,
    per_us: f64,
}

impl Local {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self { replicas: scenario.fleet.instances.into(), levels: BTreeMap::new() }
    }

    /// Judges a decision, which granted this much if it is a partial one.
    pub(crate) fn decided(
        &mut self,
        report: &Report,
        asked: &Asked,
        decision: &Decision,
        granted: Option<i64>,
    ) -> Result<(), Broken> {
        if decision.source() != DecisionSource::Local {
            return Ok(());
        }
        let is_spent = decision.limited_by().is_none() && granted != Some(0);
        for (owed, status) in asked.charges.iter().zip(decision.limits()) {
            let share = (owed.limit.capacity().micro() / self.replicas).max(owed.limit.quantum().micro());
            let shown = status.limit().capacity().micro();
            if shown > share {
                let what =
                    format!("q{}: {shown} of {:?}, the share is {share}", report.question, owed.bucket);
                return Err(Broken::new("local share", what));
            }
            let Some(rate) = owed.limit.rate().filter(|_| owed.bucket.shape == Shape::Rate) else { continue };
            let (capacity, per_us) = (shown as f64, rate.per_second() / self.replicas as f64);
            let full = || Level { amount: capacity, at: report.at, capacity, per_us };
            let place = (report.instance, owed.bucket.clone());
            let level = self.levels.entry(place).or_insert_with(full);
            #[expect(clippy::float_cmp, reason = "limits are equal or not")]
            if level.capacity != capacity || level.per_us != per_us {
                *level = full();
            }
            // Clocks drift, and the time of the report is later than that of the decision.
            let elapsed_us = (report.at - level.at + MS) as f64 / US as f64 * 1.001;
            level.amount = (level.amount + elapsed_us * per_us).min(capacity);
            level.at = report.at;
            if is_spent {
                level.amount -= granted.unwrap_or(owed.cost).min(shown) as f64;
            }
            if level.amount < -ROUNDING {
                let what = format!("q{}: {:?} is at {}", report.question, owed.bucket, level.amount);
                return Err(Broken::new("local share", what));
            }
        }
        Ok(())
    }
}
