//! What series stand for, and the bound on how many things are told apart.

use foldhash::{HashMap, HashSet};
use metrics::{Counter, counter};
use smol_str::SmolStr;
use spile_core::Source;
use spile_limiter::Series;

use crate::fingerprint::Fingerprints;
use crate::names::DECISIONS;
use crate::registrar::Registrar;
use crate::verdict::Verdict;

/// The most pairs of rule and limit that have series of their own; callers may invent rule ids without end.
const MAX_PAIRS: usize = 2_000;
/// The most tenants that are told apart.
const MAX_TENANTS: usize = 1_000;
/// What is beyond a bound is counted as.
pub(crate) const OVERFLOW: &str = "__overflow__";

/// What a series stands for.
#[derive(Clone)]
pub(crate) struct Meaning {
    pub(crate) subject: Subject,
    pub(crate) verdict: Verdict,
    counter: Counter,
}

/// What is counted.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Subject {
    /// The decisions of a rule under a limit.
    Decisions { rule: SmolStr, limit: SmolStr },
    /// The decisions on behalf of a tenant. Not a metric: tenants are too many for labels.
    Tenant(SmolStr),
}

/// The book of series, and the counts of those that have no place in a thread's table.
pub(crate) struct Book {
    registrar: Registrar,
    prints: Fingerprints,
    meanings: HashMap<Series, Meaning>,
    pairs: HashSet<(SmolStr, SmolStr)>,
    tenants: HashSet<SmolStr>,
    homeless: HashMap<Series, u64>,
}

impl Book {
    pub(crate) fn new(registrar: Registrar, prints: Fingerprints) -> Self {
        Self {
            registrar,
            prints,
            meanings: HashMap::default(),
            pairs: HashSet::default(),
            tenants: HashSet::default(),
            homeless: HashMap::default(),
        }
    }

    /// Makes room for the series of a rule, which then show as zero until the first decision.
    pub(crate) fn expect(&mut self, rule: &str, limit: &str) {
        if self.pairs.len() < MAX_PAIRS {
            let (rule, limit) = (SmolStr::new(rule), SmolStr::new(limit));
            for verdict in [Verdict::Allowed, Verdict::Denied] {
                self.counter(&rule, &limit, verdict, Source::Store).increment(0);
            }
            self.pairs.insert((rule, limit));
        }
    }

    /// Learns what a series stands for. Hands back the series to count by: another one beyond the bound.
    pub(crate) fn learn_decisions(
        &mut self,
        series: Series,
        rule: Option<&str>,
        limit: &str,
        verdict: Verdict,
        source: Source,
    ) -> Series {
        if self.meanings.contains_key(&series) {
            return series;
        }
        let pair = (SmolStr::new(rule.unwrap_or_default()), SmolStr::new(limit));
        if self.pairs.contains(&pair) || self.pairs.len() < MAX_PAIRS {
            self.pairs.insert(pair.clone());
            self.enter(series, pair, verdict, source);
            return series;
        }
        // Far from the codes of tenants, which share the hash of this name.
        let code = 1 << 32 | (verdict as u64) << 8 | source as u64;
        let series = Series::hashed(self.prints.tenant(OVERFLOW, code));
        if !self.meanings.contains_key(&series) {
            let overflow = SmolStr::new_static(OVERFLOW);
            self.enter(series, (overflow.clone(), overflow), verdict, source);
        }
        series
    }

    /// The same for a tenant.
    pub(crate) fn learn_tenant(&mut self, series: Series, tenant: &str, verdict: Verdict) -> Series {
        if self.meanings.contains_key(&series) {
            return series;
        }
        let known = self.tenants.contains(tenant);
        let (series, tenant) = if known || self.tenants.len() < MAX_TENANTS {
            (series, SmolStr::new(tenant))
        } else {
            let overflow = Series::hashed(self.prints.tenant(OVERFLOW, verdict as u64));
            (overflow, SmolStr::new_static(OVERFLOW))
        };
        self.tenants.insert(tenant.clone());
        let meaning = Meaning { subject: Subject::Tenant(tenant), verdict, counter: Counter::noop() };
        self.meanings.insert(series, meaning);
        series
    }

    /// Counts what has no place.
    pub(crate) fn count(&mut self, series: Series) {
        *self.homeless.entry(series).or_default() += 1;
    }

    /// Adds to the metric and says what was counted.
    pub(crate) fn settle(&self, series: Series, more: u64) -> Option<&Meaning> {
        self.meanings.get(&series).inspect(|meaning| meaning.counter.increment(more))
    }

    pub(crate) fn drain_homeless(&mut self) -> HashMap<Series, u64> {
        std::mem::take(&mut self.homeless)
    }

    fn enter(&mut self, series: Series, (rule, limit): (SmolStr, SmolStr), verdict: Verdict, source: Source) {
        let counter = self.counter(&rule, &limit, verdict, source);
        let subject = Subject::Decisions { rule, limit };
        self.meanings.insert(series, Meaning { subject, verdict, counter });
    }

    fn counter(&self, rule: &SmolStr, limit: &SmolStr, verdict: Verdict, source: Source) -> Counter {
        self.registrar.register(|| {
            counter!(DECISIONS, "rule" => rule.to_string(), "limit" => limit.to_string(),
                "outcome" => verdict.as_str(), "source" => source.as_str())
        })
    }
}
