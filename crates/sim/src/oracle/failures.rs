//! Deadlines, failure policies and recovery.

use std::collections::{BTreeMap, BTreeSet};

use spile_core::{Decision, DecisionSource, FailureReason};

use super::script::{Executed, Shape, Verdict};
use super::{Asked, Broken};
use crate::fleet::node::denied_command;
use crate::fleet::report::{Owed, Report, What};
use crate::scenario::{Fault, Operation, Policy, Scenario};
use crate::scheduler::{MS, Nanos, SECOND};

/// How much later than its deadline a decision may be.
const LATE: Nanos = 20 * MS;
/// How long a fault may make decisions fail after it has ended.
const AFTERMATH: Nanos = 5 * SECOND;

pub(crate) struct Failures {
    deadline: Nanos,
    policy: Policy,
    /// Until when each instance was paused last.
    paused: BTreeMap<usize, Nanos>,
    recovering: BTreeSet<u64>,
    /// Until when questions may fail, and until when those that write may.
    fails_until: Nanos,
    /// Hashes that a newer version wrote.
    newer: BTreeSet<String>,
    refuses_until: Nanos,
}

impl Failures {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            deadline: (scenario.fleet.timeout_ms + 10) * MS,
            policy: scenario.fleet.policy,
            paused: BTreeMap::new(),
            recovering: BTreeSet::new(),
            fails_until: 0,
            newer: BTreeSet::new(),
            refuses_until: 0,
        }
    }

    pub(crate) fn paused(&mut self, instance: usize, until: Nanos) {
        self.paused.insert(instance, until);
    }

    pub(crate) fn killed(&mut self, instance: usize) {
        self.paused.remove(&instance);
    }

    pub(crate) fn expect_recovery(&mut self, question: u64) {
        self.recovering.insert(question);
    }

    /// Hears of a fault. Redirections, forgotten scripts and clocks of instances are no reason to fail.
    pub(crate) fn failed(&mut self, now: Nanos, fault: Fault) {
        let until = now + Nanos::from(fault.lasts_ms()) * MS + AFTERMATH;
        // A call that was refused after its first write fails as a whole.
        let is_read =
            |command: u8| denied_command(command).iter().any(|denied| ["hmget", "pexpire"].contains(denied));
        match fault {
            Fault::StaleMap(_) | Fault::FlushScripts(_) | Fault::StepInstance(..) | Fault::Tamper(..) => {}
            Fault::DenyCommand(_, command, _) if is_read(command) => {
                self.fails_until = self.fails_until.max(until);
            }
            Fault::OutOfMemory(..) | Fault::DenyCommand(..) => {
                self.refuses_until = self.refuses_until.max(until);
            }
            _ => self.fails_until = self.fails_until.max(until),
        }
    }

    pub(crate) fn must_be_refused(&mut self, key: String) {
        self.newer.insert(key);
    }

    /// True if the question is about a hash that a newer version wrote.
    fn is_newer(&self, asked: &Asked) -> bool {
        // A reservation is counted beside the buckets of its keys.
        let counts = matches!(asked.operation, Operation::Reserve(_));
        let is_same = |owed: &Owed, newer: &str| {
            let tag = owed.bucket.key.split_inclusive('}').next().unwrap_or_default();
            owed.bucket.key == newer || counts && newer.starts_with(tag)
        };
        asked.charges.iter().any(|owed| self.newer.iter().any(|newer| is_same(owed, newer)))
    }

    /// Hears of what a script did.
    pub(crate) fn executed(&mut self, now: Nanos, question: &Executed) {
        if matches!(question.verdict, Verdict::Refused(_, true)) {
            self.fails_until = self.fails_until.max(now + SECOND);
        }
    }

    /// A decision that the store refused has a reason, which is its own: those that only read are answered while writes are refused.
    fn has_reason(&self, asked: &Asked, decision: &Decision, now: Nanos) -> bool {
        let refuses = self.refuses_until > now && asked.operation != Operation::Peek;
        let is_late =
            matches!(decision.failure(), None | Some(FailureReason::Timeout | FailureReason::Overloaded));
        if decision.failure() == Some(FailureReason::BadTypes) {
            return self.is_newer(asked);
        }
        is_late || refuses || self.fails_until > now
    }

    /// A caller that waits is denied only if its turn would come after its time.
    fn waits_long_enough(asked: &Asked, decision: &Decision, now: Nanos) -> bool {
        let Operation::UntilReady(ms) = asked.operation else { return true };
        let gives_up = asked.since + Nanos::from(ms) * MS;
        let ready = now + decision.retry_after().as_nanos() as Nanos;
        !Self::waits(asked) || decision.allowed() || decision.degraded() || ready + 2 * MS > gives_up
    }

    /// True if the question is asked by `until_ready`, which takes one key, one plan and no permit.
    fn waits(asked: &Asked) -> bool {
        let takes_permit = asked.charges.iter().any(|owed| owed.bucket.shape == Shape::Concurrency);
        matches!(asked.operation, Operation::UntilReady(_)) && !asked.shadow && !takes_permit
    }

    /// Every decision comes within its deadline.
    pub(crate) fn answered(&self, report: &Report, asked: &Asked) -> Result<(), Broken> {
        let waits = match asked.operation {
            Operation::UntilReady(ms) | Operation::AcquireWhenReady(ms) => {
                Nanos::from(ms) * MS + 2 * self.deadline
            }
            _ => 0,
        };
        let was_paused = self.paused.get(&report.instance).is_some_and(|until| *until >= asked.since);
        if was_paused || matches!(report.what, What::Abandoned) {
            return Ok(());
        }
        let took = report.at - asked.since;
        if took > self.deadline + LATE + waits {
            let what = format!("q{} {} took {} ms", report.question, asked.operation.name(), took / MS);
            let acquires = asked.charges.iter().any(|owed| owed.bucket.shape == Shape::Concurrency);
            return Err(Broken::new(if acquires { "deadline of an acquire" } else { "deadline" }, what));
        }
        if let What::Charged(Err(why)) = &report.what
            && self.recovering.contains(&report.question)
            && !self.is_newer(asked)
        {
            return Err(Broken::new("recovery", format!("q{}: {why}", report.question)));
        }
        Ok(())
    }

    /// A decision without the store follows the policy, and says so. Once everything has healed, the store decides.
    pub(crate) fn decided(
        &self,
        question: u64,
        asked: &Asked,
        decision: &Decision,
        now: Nanos,
    ) -> Result<(), Broken> {
        // Who waits is denied at once while the store fails.
        let policy = match self.policy {
            Policy::FailOpen if Self::waits(asked) => Policy::FailClosed,
            policy => policy,
        };
        let follows = match (decision.degraded(), decision.source()) {
            (false, DecisionSource::Local | DecisionSource::Policy) => false,
            (false, _) => true,
            (true, _)
                if !Self::waits(asked)
                    && matches!(
                        asked.operation,
                        Operation::UntilReady(_) | Operation::AcquireWhenReady(_)
                    ) =>
            {
                true
            }
            (true, source) => match policy {
                Policy::FailOpen => source == DecisionSource::Policy && decision.allowed(),
                Policy::FailClosed => source == DecisionSource::Policy && decision.allowed() == asked.shadow,
                Policy::Local => source == DecisionSource::Local,
            },
        };
        if !follows || (asked.shadow && !decision.allowed()) {
            let what = format!("q{question} under {:?}, shadow {}: {decision:?}", self.policy, asked.shadow);
            return Err(Broken::new("failure policy", what));
        }
        if !self.has_reason(asked, decision, now) {
            let what = format!("q{question} {}: {:?}", asked.operation.name(), decision.failure());
            return Err(Broken::new("failed without a reason", what));
        }
        if !Self::waits_long_enough(asked, decision, now) {
            let what = format!("q{question} was denied, and ready after {:?}", decision.retry_after());
            return Err(Broken::new("until ready", what));
        }
        if self.recovering.contains(&question) && decision.degraded() && !self.is_newer(asked) {
            return Err(Broken::new("recovery", format!("q{question}: {:?}", decision.failure())));
        }
        Ok(())
    }
}
