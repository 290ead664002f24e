//! The ledger records every decision and every answer of the store behind it, and checks whether they add up.
//!
//! It calculates the limits independently, and shares no arithmetic with the stores that it checks.

mod account;
mod recorded;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Amount, Charge, Decision, DecisionSource, FailurePolicy, Micros, Reason};

pub use account::Account;
pub use recorded::Recorded;

/// How much later than its deadline a decision may be, because of the scheduler of a busy machine.
pub const GRACE: Duration = Duration::from_millis(20);

/// Records decisions, their source and their latency. Clones share one ledger.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<LedgerState>>);

#[derive(Debug, Default)]
struct LedgerState {
    /// By key and limit.
    accounts: BTreeMap<(String, String), Account>,
    /// Decisions that this machine made alone while the store failed.
    local: BTreeMap<(String, String), Account>,
    /// Grants to callers under limits with a lease. The store gives such tokens before they are asked for, and takes them back.
    leased: BTreeMap<(String, String), Account>,
    decisions: Vec<RecordedDecision>,
}

/// One decision, as its caller saw it.
#[derive(Clone, Copy, Debug)]
struct RecordedDecision {
    allowed: bool,
    reason: Reason,
    source: DecisionSource,
    failure: Option<&'static str>,
    given_at: Micros,
    latency: Duration,
}

impl Ledger {
    /// Writes down a decision about `key`, when its caller had it, and how long the caller had waited.
    pub fn decided(&self, key: &str, decision: &Decision, given_at: Micros, latency: Duration) {
        let failure = decision.failure().map(spile_core::FailureReason::as_str);
        let (allowed, reason, source) = (decision.allowed(), decision.reason(), decision.source());
        let mut book = self.0.lock();
        book.decisions.push(RecordedDecision { allowed, reason, source, failure, given_at, latency });
        for status in decision.limits() {
            // Decisions of this machine alone are timed by its clock.
            let (accounts, at) = match status.limit().lease() {
                _ if source == DecisionSource::Local => (&mut book.local, status.at()),
                Some(_) if from_store(source) => (&mut book.leased, given_at),
                _ => continue,
            };
            let bucket = (key.to_owned(), status.name().to_string());
            let account = accounts.entry(bucket).or_insert_with(|| Account::new(*status.limit()));
            // The decision may have been made at any time since its caller asked.
            account.admitted(Amount::ZERO, given_at - latency);
            account.admitted(if allowed { status.cost().amount() } else { Amount::ZERO }, at);
        }
    }

    /// Writes down what the store admitted at its own time `at`. Limits with a lease are judged by what callers got.
    pub fn admitted(&self, charge: &Charge<'_>, amount: Amount, at: Micros) {
        if charge.limit().limit().lease().is_some() {
            return;
        }
        let bucket = (charge.key().as_str().to_owned(), charge.limit().name().to_string());
        let mut book = self.0.lock();
        let account = book.accounts.entry(bucket).or_insert_with(|| Account::new(*charge.limit().limit()));
        account.admitted(amount, at);
    }

    /// How many decisions were given.
    pub fn decisions(&self) -> usize {
        self.0.lock().decisions.len()
    }

    /// How many of them came from the policy and not from the store.
    pub fn by_policy(&self) -> usize {
        self.count(|line| line.failure.is_some())
    }

    /// When the last of those was given.
    pub fn last_by_policy(&self) -> Option<Micros> {
        let book = self.0.lock();
        book.decisions.iter().filter(|line| line.failure.is_some()).map(|line| line.given_at).max()
    }

    /// How many decisions the store has given since the policy last had to.
    pub fn calm(&self) -> usize {
        self.0.lock().decisions.iter().rev().take_while(|line| line.failure.is_none()).count()
    }

    /// How many of them let the caller pass.
    pub fn allowed(&self) -> usize {
        self.count(|line| line.allowed)
    }

    /// How many decisions failed for each reason.
    pub fn failures(&self) -> BTreeMap<&'static str, usize> {
        let mut failures = BTreeMap::new();
        for reason in self.0.lock().decisions.iter().filter_map(|line| line.failure) {
            *failures.entry(reason).or_default() += 1;
        }
        failures
    }

    /// The longest that a caller waited.
    pub fn slowest(&self) -> Duration {
        self.0.lock().decisions.iter().map(|line| line.latency).max().unwrap_or_default()
    }

    /// Tokens that the store admitted in all.
    pub fn tokens_admitted(&self) -> f64 {
        self.0.lock().accounts.values().map(Account::tokens_admitted).sum()
    }

    /// The most tokens by which any bucket was overdrawn at any moment; zero where all is well. Buckets with a lease are judged
    /// over the whole time, since callers hear of a decision later than it is made.
    pub fn over_admission(&self) -> f64 {
        let book = self.0.lock();
        let leased = book.leased.values().map(Account::overdrawn_in_all);
        book.accounts.values().map(Account::overdrawn).chain(leased).fold(0.0, f64::max)
    }

    /// How many decisions were made by leases.
    pub fn by_lease(&self) -> usize {
        self.count(|line| line.source == DecisionSource::Lease)
    }

    /// The share of its entitlement that `key` was given, in the limit that gave it least. Zero for a key that the
    /// store was never asked about.
    pub fn entitlement_used(&self, key: &str) -> f64 {
        let book = self.0.lock();
        let of_key = book.accounts.iter().chain(&book.leased).filter(|((of, _), _)| of == key);
        of_key.map(|(_, account)| account.entitlement_used()).reduce(f64::min).unwrap_or(0.0)
    }

    /// I1: no bucket gave more than its capacity and what came back, but for `extra` tokens that the fault may
    /// cost.
    pub fn check_conserved(&self, extra: f64) -> Result<(), Breach> {
        let over = self.over_admission();
        if over <= extra { Ok(()) } else { Err(Breach::Conservation { over, extra }) }
    }

    /// I1 while the store fails: this machine alone admitted no more than its share of each limit.
    pub fn check_conserved_locally(&self) -> Result<(), Breach> {
        let over = self.0.lock().local.values().map(Account::overdrawn).fold(0.0, f64::max);
        if over > 0.0 { Err(Breach::Conservation { over, extra: 0.0 }) } else { Ok(()) }
    }

    /// I2: every decision came within the deadline and a little grace.
    pub fn check_bounded(&self, deadline: Duration) -> Result<(), Breach> {
        self.check_bounded_but_for(deadline, |_, _| Duration::ZERO)
    }

    /// Checks as [`check_bounded`](Self::check_bounded) does, except for what `excused` makes of the time between a question and its answer.
    pub fn check_bounded_but_for(
        &self,
        deadline: Duration,
        excused: impl Fn(Micros, Micros) -> Duration,
    ) -> Result<(), Breach> {
        let book = self.0.lock();
        let late = book.decisions.iter().filter(|line| line.latency > deadline + GRACE).filter_map(|line| {
            let bound = deadline + GRACE + excused(line.given_at - line.latency, line.given_at);
            (line.latency > bound).then_some((line.latency, bound))
        });
        match late.max() {
            None => Ok(()),
            Some((slowest, bound)) => Err(Breach::Bound { slowest, bound }),
        }
    }

    /// I3: every decision without an answer follows the policy and says so, and no other does.
    pub fn check_policy(&self, policy: FailurePolicy) -> Result<(), Breach> {
        match self.0.lock().decisions.iter().find(|line| !line.follows(policy)) {
            None => Ok(()),
            Some(line) => Err(Breach::Policy { policy, line: format!("{line:?}") }),
        }
    }

    /// I6: `key`, which asked for more than there was, was given at least this share of it.
    pub fn check_entitlement(&self, key: &str, share: f64) -> Result<(), Breach> {
        let used = self.entitlement_used(key);
        if used >= share { Ok(()) } else { Err(Breach::Entitlement { used, share }) }
    }

    fn count(&self, counts: impl Fn(&RecordedDecision) -> bool) -> usize {
        self.0.lock().decisions.iter().filter(|line| counts(line)).count()
    }
}

impl RecordedDecision {
    fn follows(&self, policy: FailurePolicy) -> bool {
        let seen = (self.allowed, self.reason, self.source);
        match (self.failure, policy) {
            (None, _) => {
                matches!(seen, (true, Reason::Ok, source) | (false, Reason::Limited, source) if from_store(source))
            }
            (Some(_), FailurePolicy::Allow) => seen == (true, Reason::FailOpen, DecisionSource::Policy),
            (Some(_), FailurePolicy::Deny) => seen == (false, Reason::FailClosed, DecisionSource::Policy),
            (Some(_), FailurePolicy::Local) => matches!(seen, (_, Reason::Local, DecisionSource::Local)),
            (Some(_), _) => false,
        }
    }
}

const fn from_store(source: DecisionSource) -> bool {
    matches!(source, DecisionSource::Store | DecisionSource::DenyCache | DecisionSource::Lease)
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Breach {
    /// I1: tokens were given that were not there.
    #[error("a bucket was overdrawn by {over:.3} tokens; this fault may cost {extra}")]
    Conservation {
        /// By how much.
        over: f64,
        /// The amount that would have been within the bound.
        extra: f64,
    },
    /// I2: a caller waited too long.
    #[error("a decision took {slowest:?}; the bound is {bound:?}")]
    Bound {
        /// The longest wait.
        slowest: Duration,
        /// The deadline and the grace.
        bound: Duration,
    },
    /// I3: a decision is not what the policy says, or does not say so.
    #[error("a decision does not follow the policy `{policy}`: {line}")]
    Policy {
        /// The policy in force.
        policy: FailurePolicy,
        /// The decision.
        line: String,
    },
    /// I6: callers got less than they were owed.
    #[error("only {used:.4} of the entitlement was admitted; at least {share} is owed")]
    Entitlement {
        /// The share that was given.
        used: f64,
        /// The share that is owed.
        share: f64,
    },
}
