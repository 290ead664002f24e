//! Decisions summed by what became of them.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::verdict::Verdict;

/// How many decisions went which way.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Let pass, those that the failure policy let pass among them.
    pub allowed: u64,
    /// Refused, those that the failure policy refused among them.
    pub denied: u64,
    /// Let pass by a rule that only watches.
    pub shadow: u64,
}

impl Tally {
    /// All of them.
    pub const fn all(&self) -> u64 {
        self.allowed.saturating_add(self.denied).saturating_add(self.shadow)
    }

    /// The share that was refused, from 0 to 1; zero where nothing was decided.
    pub fn denial_ratio(&self) -> f64 {
        if self.all() == 0 { 0.0 } else { self.denied as f64 / self.all() as f64 }
    }

    /// Wraps, so that taking away again leaves what was there before.
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

    pub(crate) const fn add(&mut self, verdict: Verdict, more: u64) {
        match verdict {
            Verdict::Allowed => self.allowed += more,
            Verdict::Denied => self.denied += more,
            Verdict::Shadow => self.shadow += more,
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        // Sums of all instances come from Redis, where other hands may have written anything.
        self.allowed = self.allowed.saturating_add(other.allowed);
        self.denied = self.denied.saturating_add(other.denied);
        self.shadow = self.shadow.saturating_add(other.shadow);
    }
}
