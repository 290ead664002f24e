//! What a trial found, held against what was promised.

use std::time::Duration;

use spile_core::FailurePolicy;
use spile_testkit::ledger::{Breach, Ledger};

use crate::callers::LEASED_KEY;
use crate::report::Row;
use crate::stall::Stalls;
use crate::trial::DEADLINE;

/// I4: how soon the store must serve again once it can.
pub(crate) const RECOVERY: Duration = Duration::from_secs(1);

/// What a trial found.
pub(crate) struct Findings {
    pub(crate) ledger: Ledger,
    /// From the moment of healing on; `None` if nothing had to heal.
    recovery: Option<Duration>,
    breaches: Vec<String>,
}

impl Findings {
    /// Checks what holds under every fault: decisions are bounded (I2) and follow the policy (I3), this machine alone
    /// admits no more than its share (I1), and no witness was charged twice or given another's answer.
    pub(crate) fn new(
        ledger: Ledger,
        policy: FailurePolicy,
        recovery: Option<Duration>,
        stalls: &Stalls,
        complaints: Vec<String>,
    ) -> Self {
        let mut findings = Self { ledger, recovery, breaches: Vec::new() };
        let excused = |asked, given| stalls.between(asked, given);
        findings.note(findings.ledger.check_bounded_but_for(DEADLINE, excused));
        findings.note(findings.ledger.check_policy(policy));
        findings.note(findings.ledger.check_conserved_locally());
        findings.breaches.extend(complaints.into_iter().take(3));
        findings
    }

    /// I1: the store admitted no more than the limit, but for `extra` tokens. If it may lose what it holds, three instances may
    /// have a tenth of a bucket each that it has forgotten.
    pub(crate) fn conserved_but_for(mut self, extra: f64) -> Self {
        self.note(self.ledger.check_conserved(1.3 * extra));
        self
    }

    /// I1, with nothing to excuse.
    pub(crate) fn conserved(self) -> Self {
        self.conserved_but_for(0.0)
    }

    /// I4: the policy had to decide no longer than a second after the fault was healed.
    pub(crate) fn recovered(self) -> Self {
        let took = self.recovery;
        self.that(took.is_some_and(|took| took <= RECOVERY), || match took {
            Some(took) => format!("recovery took {took:?}; the bound is {RECOVERY:?}"),
            None => "the scenario does not say when it healed the fault".to_owned(),
        })
    }

    /// I6: what the store charged reached callers, also what it charged for leases.
    pub(crate) fn entitled(mut self) -> Self {
        let by_lease = self.ledger.by_lease();
        self = self.that(by_lease > 0, || "no lease was taken".to_owned());
        self.note(self.ledger.check_entitlement("everybody", 0.98));
        self.note(self.ledger.check_entitlement(LEASED_KEY, 0.98));
        self
    }

    /// The fault was felt: a scenario in which nothing fails proves nothing.
    pub(crate) fn felt(self) -> Self {
        let by_policy = self.ledger.by_policy();
        self.that(by_policy > 0, || "the fault was not felt: every decision came from the store".to_owned())
    }

    /// No caller noticed.
    pub(crate) fn unnoticed(self) -> Self {
        let failures = self.ledger.failures();
        self.that(failures.is_empty(), || format!("the policy had to decide: {failures:?}"))
    }

    /// The policy decided for this reason, among others.
    pub(crate) fn because(self, reason: &str) -> Self {
        let failures = self.ledger.failures();
        self.that(failures.contains_key(reason), || {
            format!("nothing failed by {reason}, only by {failures:?}")
        })
    }

    /// Anything else that must hold.
    pub(crate) fn that(mut self, holds: bool, otherwise: impl FnOnce() -> String) -> Self {
        if !holds {
            self.breaches.push(otherwise());
        }
        self
    }

    pub(crate) fn row(self, name: &'static str) -> Row {
        Row {
            name,
            decisions: self.ledger.decisions(),
            by_policy: self.ledger.by_policy(),
            slowest: self.ledger.slowest(),
            recovery: self.recovery,
            over_admission: self.ledger.over_admission(),
            breaches: self.breaches,
        }
    }

    fn note(&mut self, checked: Result<(), Breach>) {
        self.breaches.extend(checked.err().map(|breach| breach.to_string()));
    }
}
