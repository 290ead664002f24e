//! How full buckets were when asked, per limit.

use foldhash::HashMap;
use metrics::{Histogram, histogram};
use serde::{Deserialize, Serialize};
use spile_core::LimitStatus;

use crate::book::OVERFLOW;
use crate::names::BUCKET_LEVEL;
use crate::registrar::Registrar;

/// The most limits that are told apart.
const MAX_LIMITS: usize = 500;

/// How full the buckets of one limit were lately.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Level {
    /// The limit.
    pub limit: String,
    /// Its capacity and refill, as people write them.
    pub shape: String,
    /// The mean, from 0 to 1.
    pub mean: f64,
    /// The emptiest.
    pub lowest: f64,
    /// How many buckets were looked at.
    pub looked_at: u64,
}

/// Levels by limit, over one window and the one before.
pub(crate) struct Levels {
    registrar: Registrar,
    limits: HashMap<u64, Gauge>,
}

struct Gauge {
    name: String,
    shape: String,
    histogram: Histogram,
    now: Window,
    before: Window,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    sum: f64,
    count: u64,
    lowest: f64,
}

impl Window {
    const EMPTY: Self = Self { sum: 0.0, count: 0, lowest: 1.0 };
}

impl Levels {
    pub(crate) fn new(registrar: Registrar) -> Self {
        Self { registrar, limits: HashMap::default() }
    }

    pub(crate) fn look(&mut self, status: &LimitStatus) {
        let level = status.level();
        let gauge = self.gauge(status);
        gauge.histogram.record(level);
        gauge.now.sum += level;
        gauge.now.count += 1;
        gauge.now.lowest = gauge.now.lowest.min(level);
    }

    /// Closes a window.
    pub(crate) fn turn(&mut self) {
        for gauge in self.limits.values_mut() {
            gauge.before = std::mem::replace(&mut gauge.now, Window::EMPTY);
        }
    }

    /// The limits that were asked lately, by name.
    pub(crate) fn lately(&self) -> Vec<Level> {
        let mut levels: Vec<_> = self.limits.values().filter_map(Gauge::lately).collect();
        levels.sort_by(|a, b| a.limit.cmp(&b.limit));
        levels
    }

    fn gauge(&mut self, status: &LimitStatus) -> &mut Gauge {
        let full = self.limits.len() >= MAX_LIMITS && !self.limits.contains_key(&status.tag());
        let (tag, name) = if full { (0, OVERFLOW) } else { (status.tag(), status.name().as_str()) };
        self.limits.entry(tag).or_insert_with(|| Gauge {
            name: name.to_owned(),
            shape: if full { String::new() } else { status.limit().to_string() },
            histogram: self.registrar.register(|| histogram!(BUCKET_LEVEL, "limit" => name.to_owned())),
            now: Window::EMPTY,
            before: Window::EMPTY,
        })
    }
}

impl Gauge {
    fn lately(&self) -> Option<Level> {
        let looked_at = self.now.count + self.before.count;
        (looked_at > 0).then(|| Level {
            limit: self.name.clone(),
            shape: self.shape.clone(),
            mean: (self.now.sum + self.before.sum) / looked_at as f64,
            lowest: self.now.lowest.min(self.before.lowest),
            looked_at,
        })
    }
}
