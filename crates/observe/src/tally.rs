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
        self.allowed + self.denied + self.shadow
    }

    /// The share that was refused, from 0 to 1; zero where nothing was decided.
    pub fn denial_ratio(&self) -> f64 {
        if self.all() == 0 { 0.0 } else { self.denied as f64 / self.all() as f64 }
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
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.shadow += other.shadow;
    }
}
