//! Judges of what the fleet does. They share no code with what they judge.
//!
//! [`script`] judges each call of the script. The others know the questions of callers, the answers, and the executed calls.

pub(crate) mod account;
mod cells;
mod failures;
mod local;
mod permits;
mod quotas;
mod reservations;
pub mod script;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use spile_core::{Decision, DecisionSource};

use self::account::Accounts;
use self::cells::Cells;
use self::failures::Failures;
use self::local::Local;
use self::permits::Permits;
use self::quotas::Quotas;
use self::reservations::Reservations;
use self::script::{BucketId, Executed, Op, Shape, Verdict};
use self::waits::Waits;
use crate::coverage::{Coverage, Seen};
use crate::fleet::node::Node;
use crate::fleet::report::{Owed, Report, What};
use crate::scenario::{Fault, Operation, PLAN_NAMES, RefundTime, Scenario};
use crate::scheduler::{Nanos, SECOND};

/// A promise that was broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Broken {
    /// The name of the oracle.
    pub oracle: &'static str,
    /// The observation that contradicts it.
    pub what: String,
}

impl Broken {
    pub(crate) fn new(oracle: &'static str, what: impl Into<String>) -> Self {
        Self { oracle, what: what.into() }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.what)
    }
}

/// A question that was asked.
pub(crate) struct Asked {
    pub(crate) operation: Operation,
    pub(crate) charges: Vec<Owed>,
    pub(crate) shadow: bool,
    pub(crate) since: Nanos,
    /// Not answered yet.
    pub(crate) is_open: bool,
}

impl Asked {
    fn shares_bucket(&self, other: &Self) -> bool {
        self.charges.iter().any(|own| other.charges.iter().any(|owed| owed.bucket == own.bucket))
    }
}

/// All judges, and what they share.
pub(crate) struct Judge {
    pub(crate) coverage: Coverage,
    asked: BTreeMap<u64, Asked>,
    accounts: Accounts,
    quotas: Quotas,
    reservations: Reservations,
    permits: Permits,
    waits: Waits,
    failures: Failures,
    cells: Cells,
    local: Local,
    /// Quotas that a caller refunded in the window that held that moment.
    this_window: BTreeSet<BucketId>,
    /// Refunds and settlements that are not answered.
    open: BTreeMap<u64, (Operation, Vec<Shape>)>,
    nodes: u8,
    /// The fault that happened last.
    fault: Option<(Nanos, Fault)>,
}

impl Judge {
    pub(crate) fn new(scenario: &Scenario, coverage: Coverage) -> Self {
        Self {
            coverage,
            asked: BTreeMap::new(),
            accounts: Accounts::new(scenario),
            quotas: Quotas::new(scenario),
            reservations: Reservations::default(),
            permits: Permits::new(scenario),
            waits: Waits::new(scenario),
            failures: Failures::new(scenario),
            cells: Cells::default(),
            local: Local::new(scenario),
            this_window: BTreeSet::new(),
            open: BTreeMap::new(),
            nodes: scenario.fleet.nodes,
            fault: None,
        }
    }

    /// The node that has a key.
    pub(crate) fn node_of(&self, key: &str) -> usize {
        crate::fleet::cluster::node_of(key, usize::from(self.nodes))
    }

    pub(crate) fn failed(&mut self, now: Nanos, fault: Fault) {
        self.fault = Some((now, fault));
        self.accounts.failed(now, fault);
        self.quotas.failed(fault);
        self.reservations.failed(fault);
        self.permits.failed(now, fault);
        self.waits.failed(now, fault);
        self.failures.failed(now, fault);
    }

    pub(crate) fn killed(&mut self, instance: usize) {
        self.permits.killed(instance);
        self.failures.killed(instance);
    }

    /// Tasks that release permits end with their runtime.
    pub(crate) fn runtime_ended(&mut self, now: Nanos, instance: usize) {
        self.permits.runtime_ended(now, instance);
    }

    pub(crate) fn paused(&mut self, instance: usize, until: Nanos) {
        self.failures.paused(instance, until);
    }

    pub(crate) fn plan_changed(&mut self, now: Nanos, plan: u8, everywhere: bool) {
        let name = PLAN_NAMES[usize::from(plan)];
        self.accounts.plan_changed(now);
        self.permits.plan_changed(name);
        self.waits.plan_changed(now, name, everywhere);
    }

    /// Hears of a hash that a newer version wrote, so that its questions are refused.
    pub(crate) fn must_be_refused(&mut self, key: String) {
        self.failures.must_be_refused(key);
    }

    pub(crate) fn expect_recovery(&mut self, question: u64) {
        self.failures.expect_recovery(question);
    }

    /// The places of a permit that was taken from the store.
    pub(crate) fn places_of(&self, permit: &str) -> Option<Vec<BucketId>> {
        self.permits.places_of(permit)
    }

    /// True if the plan of a set of permits has changed.
    pub(crate) fn has_changed(&self, set: &str) -> bool {
        self.permits.has_changed(set)
    }

    /// The places of permits that should be free once all were given up.
    pub(crate) fn all_places(&self) -> Vec<(String, BucketId)> {
        let mut places = self.permits.all_places();
        places.retain(|(_, place)| self.permits.tells_time(self.node_of(&place.key)));
        places
    }

    /// True if nothing has happened that loses a permit.
    pub(crate) fn keeps(&self, permit: &str) -> bool {
        self.permits.keeps(permit)
    }

    /// The places that have to be free, because no caller has held them for a while.
    pub(crate) fn idle_places<'a>(
        &mut self,
        now: Nanos,
        held: impl Iterator<Item = &'a str>,
    ) -> Vec<(String, BucketId)> {
        let mut places = self.permits.idle(now, held);
        places.retain(|(_, place)| self.permits.tells_time(self.node_of(&place.key)));
        places
    }

    /// Judges the permits that callers hold at this moment.
    pub(crate) fn held<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Result<(), Broken> {
        self.permits.held(ids)
    }

    /// Hears of what a script did.
    pub(crate) fn executed(
        &mut self,
        now: Nanos,
        instance: usize,
        executed: &[Executed],
    ) -> Result<(), Broken> {
        for question in executed {
            self.cells.visit(&mut self.coverage, question);
            self.accounts.executed(now, question);
            self.waits.executed(now, instance, question);
            self.failures.executed(now, question);
            self.permits.executed(instance, question);
            refund_names_its_spend(question, &self.this_window)?;
        }
        Ok(())
    }

    /// Judges what a caller asked or was answered. Returns all that was found.
    pub(crate) fn report(&mut self, report: &Report, nodes: &[Node]) -> Vec<Broken> {
        let number = report.question;
        let found = match &report.what {
            What::Asks { operation, charges, shadow } => {
                if *operation == Operation::Reset {
                    self.quotas.resets(charges);
                    self.permits.resets(charges);
                    self.accounts.resets(charges);
                }
                if matches!(operation, Operation::AllowAsTold(_)) {
                    self.waits.asks(number, charges);
                }
                let asked = Asked {
                    operation: *operation,
                    charges: charges.clone(),
                    shadow: *shadow,
                    since: report.at,
                    is_open: true,
                };
                if let Some(former) = self.asked.insert(number, asked) {
                    debug_assert!(!former.is_open, "q{number} asks twice at once");
                }
                separates(number, charges, *shadow)
            }
            What::Refunds { spent, charges, name, operation } => {
                self.open(number, *operation, charges);
                self.accounts.refunds(number, *spent, charges, name.is_some());
                self.quotas.refunds(*spent, charges);
                if matches!(operation, Operation::Refund { time: RefundTime::ThisWindow, .. }) {
                    self.quotas.resets(charges);
                    self.this_window.extend(charges.iter().map(|owed| owed.bucket.clone()));
                }
                Ok(())
            }
            What::Refunded(result) => {
                self.close(report, result.is_ok());
                self.accounts.refunded(number, result.as_ref().ok().copied())
            }
            What::Settles { reservation, charges, amounts } => {
                self.open(number, Operation::Settle { of: 0, percent: 0 }, charges);
                self.accounts.settles(*reservation, amounts);
                self.quotas.settles(*reservation, amounts);
                Ok(())
            }
            What::Settled { reservation, result: Ok((already, amounts)) } => {
                self.close(report, true);
                self.accounts.settled(*reservation, amounts);
                self.reservations.settled(*reservation, *already, amounts)
            }
            What::Settled { .. } => {
                self.close(report, false);
                Ok(())
            }
            What::Released { .. } => Ok(()),
            What::Ended => {
                self.open.remove(&number);
                self.asked.remove(&number);
                self.waits.forget(number);
                Ok(())
            }
            _ => {
                let Some(mut asked) = self.asked.remove(&number) else { return Vec::new() };
                asked.is_open = false;
                let found = self.answered(report, &asked, nodes);
                self.asked.insert(number, asked);
                return found;
            }
        };
        found.err().into_iter().collect()
    }

    /// Asks every judge, so that each knows of the answer.
    fn answered(&mut self, report: &Report, asked: &Asked, nodes: &[Node]) -> Vec<Broken> {
        let number = report.question;
        let mut found = vec![self.failures.answered(report, asked)];
        let decision = match &report.what {
            What::Decided { decision, .. }
            | What::Granted { decision, .. }
            | What::Reserved { decision, .. }
            | What::Acquired { decision, .. } => Some(decision),
            _ => None,
        };
        if let Some(decision) = decision {
            self.cover(asked, decision.source().as_str(), report.at);
            found.push(self.failures.decided(number, asked, decision, report.at));
            let granted =
                if let What::Granted { granted, .. } = &report.what { Some(*granted) } else { None };
            if asked.operation != Operation::Peek {
                found.push(self.local.decided(report, asked, decision, granted));
            }
        }
        match &report.what {
            What::Decided { decision, waited, .. } if asked.operation != Operation::Peek => {
                let competes =
                    |other: &Asked| other.is_open && other.since <= report.at && other.shares_bucket(asked);
                let is_alone = !self.asked.values().any(competes);
                found.push(self.waits.decided(report, asked, decision, *waited && is_alone, nodes));
                found.push(self.accounts.decided(asked, decision).map(drop));
                found.push(self.quotas.decided(number, asked, decision));
            }
            What::Granted { granted, decision } => {
                found.push(self.accounts.granted(asked, *granted, decision));
            }
            What::Charged(result) => {
                self.cover(asked, if result.is_ok() { "store" } else { "failed" }, report.at);
                let may_have_run = result.as_ref().err().map(spile_core::StoreError::may_have_run);
                found.push(self.accounts.charged_late(asked, may_have_run));
            }
            What::Reserved { reservation, decision } => {
                found.push(self.accounts.reserved(*reservation, asked, decision));
                found.push(self.quotas.decided(*reservation, asked, decision));
            }
            What::Acquired { decision, permit } => {
                if let Some(permit) = permit {
                    self.permits.acquired(permit, report.instance, asked, decision);
                }
                found.push(self.accounts.decided(asked, decision).map(drop));
                found.push(self.quotas.decided(number, asked, decision));
            }
            What::Reset(result) => {
                self.cover(asked, if result.is_ok() { "store" } else { "failed" }, report.at);
                if result.is_ok() {
                    self.permits.was_reset(report.at, &asked.charges);
                    self.accounts.was_reset(report.at, &asked.charges);
                }
            }
            What::Abandoned => self.accounts.abandoned(asked),
            _ => {}
        }
        found.into_iter().filter_map(Result::err).collect()
    }

    /// Remembers a question that has no decision.
    fn open(&mut self, number: u64, operation: Operation, charges: &[Owed]) {
        let shapes = charges.iter().map(|charge| charge.bucket.shape).collect();
        self.open.insert(number, (operation, shapes));
    }

    fn close(&mut self, report: &Report, is_done: bool) {
        if let Some((operation, shapes)) = self.open.remove(&report.question) {
            self.see(operation, shapes.into_iter(), if is_done { "store" } else { "failed" }, report.at);
        }
    }

    fn cover(&mut self, asked: &Asked, source: &'static str, now: Nanos) {
        self.see(asked.operation, asked.charges.iter().map(|charge| charge.bucket.shape), source, now);
    }

    fn see(
        &mut self,
        operation: Operation,
        shapes: impl Iterator<Item = Shape>,
        source: &'static str,
        now: Nanos,
    ) {
        let lately = self.fault.filter(|(at, _)| *at + 2 * SECOND > now);
        let fault = lately.map_or("none", |(_, fault)| fault.name());
        for shape in shapes {
            let (operation, shape) = (operation.name(), shape.name());
            self.coverage.see(Seen { operation, shape, source, fault });
        }
    }

    /// Judges what is left at the end.
    pub(crate) fn finish(&mut self, now: Nanos) -> Vec<Broken> {
        self.accounts.finish(now)
    }
}

/// A shadow rule has separate buckets, so that it changes nothing for enforced rules.
fn separates(number: u64, charges: &[Owed], shadow: bool) -> Result<(), Broken> {
    let is_apart =
        |owed: &Owed| owed.bucket.key.contains("}:shadow:") || owed.bucket.key.contains(":permits:shadow:");
    match charges.iter().find(|owed| is_apart(owed) != shadow) {
        Some(owed) => {
            Err(Broken::new("shadow", format!("q{number}, shadow {shadow}, charges {:?}", owed.bucket)))
        }
        None => Ok(()),
    }
}

/// A refund names the time of its spend, or none, unless a caller wants it in the window that holds now: a quota would take back what was
/// spent in another one.
fn refund_names_its_spend(question: &Executed, this_window: &BTreeSet<BucketId>) -> Result<(), Broken> {
    let quotas = || question.charges.iter().filter(|charge| charge.bucket.shape == Shape::Quota);
    let is_meant = quotas().all(|charge| this_window.contains(&charge.bucket));
    let is_refund = matches!(question.operation, Op::Refund | Op::RefundOnce | Op::Release);
    if is_refund && !is_meant && question.spent == Some(question.at) {
        return Err(Broken::new("time of a refund", format!("{question:?}")));
    }
    Ok(())
}

/// True if the store charged the question, by itself or by tokens that were taken from it.
pub(crate) fn is_charged(decision: &Decision) -> bool {
    decision.allowed()
        && !decision.degraded()
        && decision.reason() == spile_core::Reason::Ok
        && matches!(decision.source(), DecisionSource::Store | DecisionSource::Lease)
}

/// True if the bucket is a rate or a quota that callers pay with.
pub(crate) fn pays(bucket: &BucketId) -> bool {
    bucket.shape != Shape::Concurrency && !bucket.key.contains("}:re") && !bucket.key.contains("}::")
}

/// The amount that a question charged if enough was available: positive or negative.
pub(crate) fn nominal(question: &Executed, cost: i128) -> i128 {
    if question.verdict != Verdict::Done {
        return 0;
    }
    match question.operation {
        Op::Spend | Op::Acquire | Op::Retake | Op::Reserve | Op::Charge | Op::Settle => cost,
        Op::SpendUpTo => question.amount,
        Op::Refund | Op::RefundOnce | Op::Release => -cost,
        Op::Peek | Op::Reset | Op::Renew => 0,
    }
}
