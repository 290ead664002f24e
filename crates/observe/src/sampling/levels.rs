//! How full buckets were when a request was charged, per limit.

use foldhash::HashMap;
use metrics::{Histogram, histogram};
use serde::{Deserialize, Serialize};
use spile_core::LimitStatus;

use crate::metrics::{BUCKET_LEVEL, OVERFLOW, Registrar};

/// The most limits whose level is tracked.
const MAX_LIMITS: usize = 500;

/// How full the buckets of one limit were in the last minute.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BucketLevel {
    /// The limit.
    pub limit: String,
    /// Its capacity and refill, such as `10, 1/s`.
    pub shape: String,
    /// The mean, from 0 to 1.
    pub mean: f64,
    /// The level of the emptiest bucket, from 0 to 1.
    pub lowest: f64,
    /// The number of samples in the figures.
    pub looked_at: u64,
}

/// Levels by limit, over the current window and the one before.
pub(crate) struct BucketLevels {
    registrar: Registrar,
    limits: HashMap<u64, LimitLevels>,
}

struct LimitLevels {
    name: String,
    shape: String,
    histogram: Histogram,
    now: LevelWindow,
    before: LevelWindow,
}

#[derive(Clone, Copy, Debug)]
struct LevelWindow {
    sum: f64,
    count: u64,
    lowest: f64,
}

impl LevelWindow {
    const EMPTY: Self = Self { sum: 0.0, count: 0, lowest: 1.0 };
}

impl BucketLevels {
    pub(crate) fn new(registrar: Registrar) -> Self {
        Self { registrar, limits: HashMap::default() }
    }

    pub(crate) fn record(&mut self, status: &LimitStatus) {
        let level = status.level();
        let gauge = self.gauge(status);
        gauge.histogram.record(level);
        gauge.now.sum += level;
        gauge.now.count += 1;
        gauge.now.lowest = gauge.now.lowest.min(level);
    }

    /// Begins a new window.
    pub(crate) fn rotate(&mut self) {
        for gauge in self.limits.values_mut() {
            gauge.before = std::mem::replace(&mut gauge.now, LevelWindow::EMPTY);
        }
    }

    /// The limits that were charged in the last two windows, by name.
    pub(crate) fn recent(&self) -> Vec<BucketLevel> {
        let mut levels: Vec<_> = self.limits.values().filter_map(LimitLevels::recent).collect();
        levels.sort_by(|a, b| a.limit.cmp(&b.limit));
        levels
    }

    fn gauge(&mut self, status: &LimitStatus) -> &mut LimitLevels {
        let full = self.limits.len() >= MAX_LIMITS && !self.limits.contains_key(&status.tag());
        let (tag, name) = if full { (0, OVERFLOW) } else { (status.tag(), status.name().as_str()) };
        self.limits.entry(tag).or_insert_with(|| LimitLevels {
            name: name.to_owned(),
            shape: if full { String::new() } else { status.limit().to_string() },
            histogram: self.registrar.register(|| histogram!(BUCKET_LEVEL, "limit" => name.to_owned())),
            now: LevelWindow::EMPTY,
            before: LevelWindow::EMPTY,
        })
    }
}

impl LimitLevels {
    fn recent(&self) -> Option<BucketLevel> {
        let looked_at = self.now.count + self.before.count;
        (looked_at > 0).then(|| BucketLevel {
            limit: self.name.clone(),
            shape: self.shape.clone(),
            mean: (self.now.sum + self.before.sum) / looked_at as f64,
            lowest: self.now.lowest.min(self.before.lowest),
            looked_at,
        })
    }
}
