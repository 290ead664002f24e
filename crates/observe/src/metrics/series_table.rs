//! The labels of every series, and the bound on their number.

use foldhash::{HashMap, HashSet};
use metrics::{Counter, counter};
use smol_str::SmolStr;
use spile_core::DecisionSource;
use spile_limiter::Series;

use super::fingerprint::Fingerprints;
use super::names::DECISIONS;
use super::outcome::DecisionOutcome;
use super::registrar::Registrar;

/// The most pairs of rule and limit that have a separate series. Callers can make up any number of rule ids.
const MAX_PAIRS: usize = 2_000;
/// The most tenants that have a separate series.
const MAX_TENANTS: usize = 1_000;
/// The name under which everything beyond a bound is counted.
pub(crate) const OVERFLOW: &str = "__overflow__";

/// The decisions that a series counts, and its metric.
#[derive(Clone)]
pub(crate) struct SeriesInfo {
    pub(crate) subject: SeriesSubject,
    pub(crate) outcome: DecisionOutcome,
    /// Where the decisions came from. `None` for the series of tenants.
    pub(crate) source: Option<DecisionSource>,
    counter: Counter,
}

/// The decisions that a series counts.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum SeriesSubject {
    /// The decisions of a rule under a limit.
    Decisions { rule: SmolStr, limit: SmolStr },
    /// The decisions of a tenant. These are not exported as a metric: there are too many tenants for labels.
    Tenant(SmolStr),
}

/// All series, and the counts of series that have no slot in a thread's table.
pub(crate) struct SeriesTable {
    registrar: Registrar,
    fingerprints: Fingerprints,
    infos: HashMap<Series, SeriesInfo>,
    pairs: HashSet<(SmolStr, SmolStr)>,
    tenants: HashSet<SmolStr>,
    unplaced: HashMap<Series, u64>,
}

impl SeriesTable {
    pub(crate) fn new(registrar: Registrar, fingerprints: Fingerprints) -> Self {
        Self {
            registrar,
            fingerprints,
            infos: HashMap::default(),
            pairs: HashSet::default(),
            tenants: HashSet::default(),
            unplaced: HashMap::default(),
        }
    }

    /// Creates the series of a rule, so that they show as zero until the first decision.
    pub(crate) fn register_rule(&mut self, rule: &str, limit: &str) {
        if self.pairs.len() < MAX_PAIRS {
            let (rule, limit) = (SmolStr::new(rule), SmolStr::new(limit));
            for outcome in [DecisionOutcome::Allowed, DecisionOutcome::Denied] {
                self.counter(&rule, &limit, outcome, DecisionSource::Store).increment(0);
            }
            self.pairs.insert((rule, limit));
        }
    }

    /// Adds a series for decisions. Returns the series to count under: beyond the bound this is the overflow series.
    pub(crate) fn add_decisions(
        &mut self,
        series: Series,
        rule: Option<&str>,
        limit: &str,
        outcome: DecisionOutcome,
        source: DecisionSource,
    ) -> Series {
        if self.infos.contains_key(&series) {
            return series;
        }
        let pair = (SmolStr::new(rule.unwrap_or_default()), SmolStr::new(limit));
        if self.pairs.contains(&pair) || self.pairs.len() < MAX_PAIRS {
            self.pairs.insert(pair.clone());
            self.insert(series, pair, outcome, source);
            return series;
        }
        // The high bit keeps this code apart from those of tenants, which use the same hash for this name.
        let code = 1 << 32 | (outcome as u64) << 8 | source as u64;
        let series = Series::hashed(self.fingerprints.tenant(OVERFLOW, code));
        if !self.infos.contains_key(&series) {
            let overflow = SmolStr::new_static(OVERFLOW);
            self.insert(series, (overflow.clone(), overflow), outcome, source);
        }
        series
    }

    /// Adds a series for a tenant, in the same way.
    pub(crate) fn add_tenant(&mut self, series: Series, tenant: &str, outcome: DecisionOutcome) -> Series {
        if self.infos.contains_key(&series) {
            return series;
        }
        let known = self.tenants.contains(tenant);
        let (series, tenant) = if known || self.tenants.len() < MAX_TENANTS {
            (series, SmolStr::new(tenant))
        } else {
            let overflow = Series::hashed(self.fingerprints.tenant(OVERFLOW, outcome as u64));
            (overflow, SmolStr::new_static(OVERFLOW))
        };
        self.tenants.insert(tenant.clone());
        let info = SeriesInfo {
            subject: SeriesSubject::Tenant(tenant),
            outcome,
            source: None,
            counter: Counter::noop(),
        };
        self.infos.insert(series, info);
        series
    }

    /// Counts one decision of a series that has no slot in the thread's table.
    pub(crate) fn count(&mut self, series: Series) {
        *self.unplaced.entry(series).or_default() += 1;
    }

    /// Adds to the metric of a series and returns what the series counts.
    pub(crate) fn record(&self, series: Series, more: u64) -> Option<&SeriesInfo> {
        self.infos.get(&series).inspect(|info| info.counter.increment(more))
    }

    pub(crate) fn drain_unplaced(&mut self) -> HashMap<Series, u64> {
        std::mem::take(&mut self.unplaced)
    }

    fn insert(
        &mut self,
        series: Series,
        (rule, limit): (SmolStr, SmolStr),
        outcome: DecisionOutcome,
        source: DecisionSource,
    ) {
        let counter = self.counter(&rule, &limit, outcome, source);
        let subject = SeriesSubject::Decisions { rule, limit };
        self.infos.insert(series, SeriesInfo { subject, outcome, source: Some(source), counter });
    }

    fn counter(
        &self,
        rule: &SmolStr,
        limit: &SmolStr,
        outcome: DecisionOutcome,
        source: DecisionSource,
    ) -> Counter {
        self.registrar.register(|| {
            counter!(DECISIONS, "rule" => rule.to_string(), "limit" => limit.to_string(),
                "outcome" => outcome.as_str(), "source" => source.as_str())
        })
    }
}
