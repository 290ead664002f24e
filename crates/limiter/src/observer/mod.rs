//! Observers of decisions: metrics, a dashboard, a log.

mod counts;
mod rule_name;
mod sampler;
mod thread_counts;

use std::sync::Arc;

use spile_core::{Charge, Decision, Key, Micros};

pub use self::counts::{DecisionCounts, Series};
pub use self::rule_name::RuleName;

/// Is called with every decision, on the thread that decides: it must be quick and must not block.
pub trait Observer: Send + Sync {
    /// A decision was made.
    fn decided(&self, observed: &Observed<'_>);

    /// A request passed because this rule says that no limit applies.
    fn unlimited(&self, rule: RuleName<'_>, tenant: Option<&str>) {
        let _ = (rule, tenant);
    }

    /// Where the limiter counts decisions that are like earlier ones, instead of calling [`decided`](Self::decided). Asked
    /// once, when the limiter is built.
    ///
    /// `None`, the default, means that the observer is called with every decision.
    fn counts(&self) -> Option<Arc<DecisionCounts>> {
        None
    }
}

/// A decision, and who asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    pub(crate) rule: Option<RuleName<'a>>,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) charges: &'a [Charge<'a>],
    pub(crate) decision: &'a Decision,
    pub(crate) heard_at: Micros,
}

impl<'a> Observed<'a> {
    /// A decision about `charges`. For programs that decide without the limiter, and for tests of observers.
    pub fn new(charges: &'a [Charge<'a>], decision: &'a Decision) -> Self {
        Self { rule: None, tenant: None, charges, decision, heard_at: decision.at() }
    }

    /// Sets the rule that asked.
    #[must_use]
    pub const fn by_rule(mut self, rule: Option<RuleName<'a>>) -> Self {
        self.rule = rule;
        self
    }

    /// Sets the tenant on whose behalf it was asked.
    #[must_use]
    pub const fn for_tenant(mut self, tenant: Option<&'a str>) -> Self {
        self.tenant = tenant;
        self
    }

    /// The rule that asked. `None` if no rule did.
    pub fn rule(&self) -> Option<&'a str> {
        self.rule.map(|rule| rule.as_str())
    }

    /// The tenant that asked. `None` if it is not known.
    pub const fn tenant(&self) -> Option<&'a str> {
        self.tenant
    }

    /// Who pays under the limit that binds. Not for logs or labels.
    #[inline]
    pub fn key(&self) -> Option<Key<'a>> {
        self.charges.get(self.decision.binding_index()).map(Charge::key)
    }

    /// Who pays, for each limit of the decision.
    pub fn keys(&self) -> impl Iterator<Item = Key<'a>> {
        self.charges.iter().map(Charge::key)
    }

    /// A decision, as an observer sees it.
    pub const fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// When this machine got the decision, by its own clock. [`Decision::at`] is the store's time.
    #[inline]
    pub const fn heard_at(&self) -> Micros {
        self.heard_at
    }
}
