//! Conservation: an allowed cost was charged, and a charged cost was allowed.
//!
//! Each bucket has two accounts of nominal costs: one of executed calls, one of the answers that callers got. The second never exceeds the
//! first. In the end both are equal, except for what cannot be known: answers that were lost, callers that went away, and tokens in leases
//! of instances that were killed or after limits have changed.

use std::collections::{BTreeMap, BTreeSet};

use spile_core::Decision;

use super::script::{BucketId, Executed, Verdict};
use super::{Asked, Broken, is_charged, nominal, pays};
use crate::fleet::report::Owed;
use crate::scenario::{Fault, LimitSpec, Operation, PLAN_NAMES, Scenario};
use crate::scheduler::{MS, Nanos, SECOND, US};

/// No lease lasts as long, with the time that it takes to return it.
const LONGEST_LEASE: Nanos = SECOND;

#[derive(Debug, Default)]
struct Account {
    /// The amount that scripts charged, less the amount that they refunded.
    executed: i128,
    /// The most that calls charged which were refused after a write.
    refused: i128,
    /// The least that callers know to be charged.
    known: i128,
    /// The amount that may be charged besides.
    slack: i128,
    /// When the bucket is full again, if it has leases. Tokens of a lease that were not returned until then would be too many.
    is_full_at: Option<Nanos>,
}

impl Account {
    /// A bucket that is full has got back all that was lent.
    fn fill(&mut self) {
        self.slack = self.slack.max(self.executed - self.known);
    }
}

/// A reservation, by bucket: the least and the most that it may cost by now.
struct Reserved {
    charges: Vec<Owed>,
    least: Vec<i128>,
    most: Vec<i128>,
}

/// A refund that has not been answered for certain.
struct Refund {
    charges: Vec<Owed>,
    spent: u64,
    is_named: bool,
    /// Whether it may be given: its id was not used before, or may have been forgotten.
    may_be_given: bool,
}

/// Knowledge of a refund with an id.
#[derive(Clone, Copy, Default)]
struct Named {
    is_certain: bool,
    was_given: bool,
}

pub(crate) struct Accounts {
    by_bucket: BTreeMap<BucketId, Account>,
    reserved: BTreeMap<u64, Reserved>,
    refunds: BTreeMap<u64, Refund>,
    /// Decisions that were refunded by an id.
    named: BTreeMap<u64, Named>,
    /// Plans with leases.
    leased: BTreeSet<&'static str>,
    /// Until then, leases may lose tokens: while something fails, and after a change of any limit, because tokens then only go back once a
    /// question has confirmed their limit.
    lossy_until: Option<Nanos>,
    /// When sets of permits were last reset.
    reset: BTreeMap<BucketId, Nanos>,
    has_faults: bool,
    is_cluster: bool,
    /// Data may have been lost or clocks stepped, so that ids may have been forgotten.
    forgets: bool,
}

impl Accounts {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let is_leased = |limit: &LimitSpec| matches!(limit, LimitSpec::Rate { lease_ms: 1.., .. });
        let leased = scenario.plans.iter().zip(PLAN_NAMES);
        let leased = leased.filter(|(plan, _)| plan.versions.iter().flatten().any(is_leased));
        Self {
            by_bucket: BTreeMap::new(),
            reserved: BTreeMap::new(),
            refunds: BTreeMap::new(),
            named: BTreeMap::new(),
            leased: leased.map(|(_, name)| name).collect(),
            lossy_until: None,
            reset: BTreeMap::new(),
            has_faults: false,
            is_cluster: scenario.fleet.nodes > 1,
            forgets: false,
        }
    }

    pub(crate) fn failed(&mut self, now: Nanos, fault: Fault) {
        self.lose_leases(now + Nanos::from(fault.lasts_ms()) * MS);
        self.has_faults = true;
        self.forgets |= fault.loses_state();
        if self.forgets {
            let mut open = std::mem::take(&mut self.refunds);
            for refund in open.values_mut().filter(|refund| !refund.may_be_given) {
                refund.may_be_given = true;
                self.may_be_refunded(&refund.charges);
            }
            self.refunds = open;
        }
    }

    fn may_be_refunded(&mut self, charges: &[Owed]) {
        for owed in charges.iter().filter(|owed| pays(&owed.bucket)) {
            let account = self.account(&owed.bucket);
            account.known -= i128::from(owed.cost);
            account.slack += i128::from(owed.cost);
        }
    }

    pub(crate) fn plan_changed(&mut self, now: Nanos) {
        self.lose_leases(now);
    }

    fn lose_leases(&mut self, until: Nanos) {
        self.lossy_until = self.lossy_until.max(Some(until + LONGEST_LEASE));
    }

    /// Lets leases that were lost be lost, once nothing fails any more.
    fn settle_leases(&mut self, now: Nanos) {
        if self.lossy_until.is_some_and(|until| until <= now) {
            self.lossy_until = None;
            self.by_bucket
                .values_mut()
                .filter(|account| account.is_full_at.is_some())
                .for_each(Account::fill);
        }
    }

    pub(crate) fn executed(&mut self, now: Nanos, question: &Executed) {
        self.settle_leases(now);
        for charge in question.charges.iter().filter(|charge| pays(&charge.bucket)) {
            if self.is_leased(&charge.bucket) {
                let full_in =
                    charge.limit.rate.map_or(0, |rate| rate.time_for(charge.limit.capacity - charge.after));
                let account = self.account(&charge.bucket);
                if charge.before == charge.limit.capacity {
                    account.fill();
                }
                account.is_full_at = Some(now.saturating_add(full_in as Nanos * US));
            }
            let cost = nominal(question, charge.cost);
            if let Verdict::Refused(_, true) = question.verdict {
                let account = self.account(&charge.bucket);
                account.slack += charge.cost.abs();
                account.refused += charge.cost.abs();
            }
            if cost != 0 {
                self.account(&charge.bucket).executed += cost;
            }
        }
    }

    fn is_leased(&self, bucket: &BucketId) -> bool {
        self.leased.contains(bucket.key.rsplit(':').next().unwrap_or_default())
    }

    fn account(&mut self, bucket: &BucketId) -> &mut Account {
        if !self.by_bucket.contains_key(bucket) {
            self.by_bucket.insert(bucket.clone(), Account::default());
        }
        self.by_bucket.get_mut(bucket).expect("it was inserted")
    }

    fn know(&mut self, charges: &[Owed], cost: impl Fn(&Owed) -> i128) -> Result<(), Broken> {
        for owed in charges.iter().filter(|owed| pays(&owed.bucket)) {
            let cost = cost(owed);
            let account = self.account(&owed.bucket);
            account.known += cost;
            if account.known > account.executed + account.refused {
                let what = format!(
                    "{:?}: callers know {} to be charged, scripts charged {}",
                    owed.bucket, account.known, account.executed
                );
                return Err(Broken::new("paid for", what));
            }
        }
        Ok(())
    }

    fn doubt(&mut self, charges: &[Owed]) {
        for owed in charges.iter().filter(|owed| pays(&owed.bucket)) {
            self.account(&owed.bucket).slack += i128::from(owed.cost);
        }
    }

    /// Returns true if the store may have charged what the caller does not know of.
    pub(crate) fn decided(&mut self, asked: &Asked, decision: &Decision) -> Result<bool, Broken> {
        if is_charged(decision) {
            self.know(&asked.charges, |owed| i128::from(owed.cost))?;
        }
        let waits = matches!(asked.operation, Operation::AcquireWhenReady(_) | Operation::UntilReady(_));
        // The undo of a chain on several nodes may fail.
        let was_reset = |owed: &Owed| self.reset.get(&owed.bucket).is_some_and(|at| *at >= asked.since);
        let is_reset = asked.charges.iter().any(was_reset);
        // An acquire may have succeeded only after a first attempt was undone.
        let retries = matches!(asked.operation, Operation::Acquire | Operation::AcquireWhenReady(_));
        let may_fail =
            self.has_faults && !is_charged(decision) || is_reset && (retries || !is_charged(decision));
        let undoes = self.is_cluster && may_fail;
        let is_doubtful =
            decision.may_have_run() || undoes || waits && (self.has_faults || !decision.allowed());
        if is_doubtful {
            self.doubt(&asked.charges);
        }
        Ok(is_doubtful)
    }

    pub(crate) fn granted(&mut self, asked: &Asked, granted: i64, decision: &Decision) -> Result<(), Broken> {
        if is_charged(decision) {
            self.know(&asked.charges, |_| i128::from(granted))?;
        }
        if decision.may_have_run() || self.is_cluster && self.has_faults {
            self.doubt(&asked.charges);
        }
        Ok(())
    }

    pub(crate) fn charged_late(&mut self, asked: &Asked, error: Option<bool>) -> Result<(), Broken> {
        match error {
            None => self.know(&asked.charges, |owed| i128::from(owed.cost)),
            Some(may_have_run) => {
                if may_have_run || self.is_cluster {
                    self.doubt(&asked.charges);
                }
                Ok(())
            }
        }
    }

    /// Called when callers reset these buckets. A chain under way on another node then finds no permit, and undoes nothing.
    pub(crate) fn resets(&mut self, charges: &[Owed]) {
        self.set_reset(Nanos::MAX, charges);
    }

    /// Called when they have been reset. A portion that was in flight is dropped, because it may have been taken before.
    pub(crate) fn was_reset(&mut self, now: Nanos, charges: &[Owed]) {
        self.set_reset(now, charges);
        self.lose_leases(now);
    }

    fn set_reset(&mut self, now: Nanos, charges: &[Owed]) {
        let sets = charges.iter().filter(|owed| !pays(&owed.bucket));
        self.reset.extend(sets.map(|owed| (owed.bucket.clone(), now)));
    }

    pub(crate) fn abandoned(&mut self, asked: &Asked) {
        self.doubt(&asked.charges);
    }

    pub(crate) fn refunds(&mut self, question: u64, spent: u64, charges: &[Owed], is_named: bool) {
        let may_be_given = !is_named || self.forgets || !self.named.contains_key(&spent);
        if is_named {
            self.named.entry(spent).or_default();
        }
        if may_be_given {
            self.may_be_refunded(charges);
        }
        self.refunds.insert(question, Refund { charges: charges.to_vec(), spent, is_named, may_be_given });
    }

    /// `None`: it failed, and may still be given.
    pub(crate) fn refunded(&mut self, question: u64, given: Option<bool>) -> Result<(), Broken> {
        let Some(given) = given else { return Ok(()) };
        let Some(refund) = self.refunds.remove(&question) else { return Ok(()) };
        if self.forgets {
            return Ok(());
        }
        if refund.is_named {
            let named = self.named.entry(refund.spent).or_default();
            // On several nodes each gives its part once.
            if given && std::mem::replace(&mut named.was_given, true) && !self.is_cluster {
                return Err(Broken::new(
                    "refunded once",
                    format!("q{} was refunded twice by one id", refund.spent),
                ));
            }
            if std::mem::replace(&mut named.is_certain, true) {
                return Ok(());
            }
        }
        for owed in refund.charges.iter().filter(|owed| pays(&owed.bucket)) {
            self.account(&owed.bucket).slack -= i128::from(owed.cost);
        }
        Ok(())
    }

    pub(crate) fn reserved(
        &mut self,
        reservation: u64,
        asked: &Asked,
        decision: &Decision,
    ) -> Result<(), Broken> {
        let is_doubtful = self.decided(asked, decision)?;
        let costs: Vec<i128> = asked.charges.iter().map(|owed| i128::from(owed.cost)).collect();
        let nothing = vec![0; costs.len()];
        let least = if is_charged(decision) { costs.clone() } else { nothing.clone() };
        let costs = if is_charged(decision) || is_doubtful { costs } else { nothing };
        self.reserved.insert(reservation, Reserved { charges: asked.charges.clone(), least, most: costs });
        Ok(())
    }

    pub(crate) fn settles(&mut self, reservation: u64, amounts: &[i64]) {
        let Some(mut reserved) = self.reserved.remove(&reservation) else { return };
        for (at, amount) in amounts.iter().enumerate().filter(|(at, _)| pays(&reserved.charges[*at].bucket)) {
            let (least, most) = (&mut reserved.least[at], &mut reserved.most[at]);
            let (lower, higher) = ((*least).min(i128::from(*amount)), (*most).max(i128::from(*amount)));
            let account = self.by_bucket.entry(reserved.charges[at].bucket.clone()).or_default();
            account.known -= *least - lower;
            account.slack += (*least - lower) + (higher - *most);
            if self.forgets {
                // The marker may be one from before a settlement, which then is counted twice.
                let twice = higher.max(i128::from(reserved.charges[at].cost));
                account.slack += twice;
                account.refused += twice;
            }
            (*least, *most) = (lower, higher);
        }
        self.reserved.insert(reservation, reserved);
    }

    pub(crate) fn settled(&mut self, reservation: u64, amounts: &[i64]) {
        let Some(reserved) = self.reserved.get_mut(&reservation) else { return };
        // An uncertain amount stays uncertain.
        if self.forgets || self.is_cluster && self.has_faults {
            return;
        }
        for (at, amount) in amounts.iter().enumerate().filter(|(at, _)| pays(&reserved.charges[*at].bucket)) {
            let (least, most) = (&mut reserved.least[at], &mut reserved.most[at]);
            let amount = i128::from(*amount).clamp(*least, *most);
            let account = self.by_bucket.entry(reserved.charges[at].bucket.clone()).or_default();
            account.known += amount - *least;
            account.slack -= *most - *least;
            (*least, *most) = (amount, amount);
        }
    }

    /// Compares both accounts of every bucket at the end.
    pub(crate) fn finish(&mut self, now: Nanos) -> Vec<Broken> {
        self.settle_leases(now);
        self.by_bucket
            .values_mut()
            .filter(|account| account.is_full_at.is_some_and(|at| at <= now))
            .for_each(Account::fill);
        self.by_bucket.iter().filter_map(|(bucket, account)| self.balance(bucket, account).err()).collect()
    }

    fn balance(&self, bucket: &BucketId, account: &Account) -> Result<(), Broken> {
        if account.known > account.executed + account.refused {
            let what = format!(
                "{bucket:?}: callers know {} to be charged, scripts charged {}",
                account.known, account.executed
            );
            return Err(Broken::new("paid for", what));
        }
        let is_leased = self.is_leased(bucket);
        if account.executed > account.known + account.slack {
            let what = format!(
                "{bucket:?}: scripts charged {}, callers know {} and cannot know {} more",
                account.executed, account.known, account.slack
            );
            return Err(Broken::new(if is_leased { "lent tokens return" } else { "conserved" }, what));
        }
        Ok(())
    }
}
