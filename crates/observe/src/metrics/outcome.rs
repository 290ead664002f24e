//! The outcome of a decision as it is counted, and counts by outcome.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use spile_core::{Decision, Reason};

/// Decisions by outcome.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OutcomeCounts {
    /// Allowed, including those that the failure policy allowed.
    pub allowed: u64,
    /// Denied, including those that the failure policy denied.
    pub denied: u64,
    /// Allowed only because the rule is in shadow mode.
    pub shadow: u64,
}

impl OutcomeCounts {
    /// The sum of all outcomes.
    pub const fn all(&self) -> u64 {
        self.allowed.saturating_add(self.denied).saturating_add(self.shadow)
    }

    /// The share that was denied, from 0 to 1. Zero if there were no decisions.
    pub(crate) fn denial_ratio(&self) -> f64 {
        if self.all() == 0 { 0.0 } else { self.denied as f64 / self.all() as f64 }
    }

    /// Wraps on overflow, so that subtracting the same counts again restores the old value.
    pub(crate) const fn wrapping_add(self, other: Self) -> Self {
        Self {
            allowed: self.allowed.wrapping_add(other.allowed),
            denied: self.denied.wrapping_add(other.denied),
            shadow: self.shadow.wrapping_add(other.shadow),
        }
    }

    pub(crate) const fn wrapping_sub(self, other: Self) -> Self {
        Self {
            allowed: self.allowed.wrapping_sub(other.allowed),
            denied: self.denied.wrapping_sub(other.denied),
            shadow: self.shadow.wrapping_sub(other.shadow),
        }
    }

    pub(crate) const fn add(&mut self, outcome: DecisionOutcome, more: u64) {
        match outcome {
            DecisionOutcome::Allowed => self.allowed += more,
            DecisionOutcome::Denied => self.denied += more,
            DecisionOutcome::Shadow => self.shadow += more,
        }
    }
}

impl AddAssign for OutcomeCounts {
    fn add_assign(&mut self, other: Self) {
        // Saturates: the sums of all instances come from Redis, where other programs may have written any number.
        self.allowed = self.allowed.saturating_add(other.allowed);
        self.denied = self.denied.saturating_add(other.denied);
        self.shadow = self.shadow.saturating_add(other.shadow);
    }
}

/// The outcome of a decision, as metrics label it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum DecisionOutcome {
    Allowed,
    Denied,
    /// Would have been denied, but the rule is in shadow mode.
    Shadow,
}

impl DecisionOutcome {
    pub(crate) const fn of(decision: &Decision) -> Self {
        match (decision.reason(), decision.allowed()) {
            (Reason::Shadow, _) => Self::Shadow,
            (_, true) => Self::Allowed,
            (_, false) => Self::Denied,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Shadow => "shadow",
        }
    }
}
