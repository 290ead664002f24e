//! The table of combinations, asked through a limiter: the answer is the oracle's, whichever source it comes from.

use std::time::Duration;

use spile_core::{
    Amount, Charge, Charges, Clock, Decision, DecisionSource, FailurePolicy, FakeClock, Limit, LimitStatus,
    Micros, NamedLimit, Operation, Shape, Verdict,
};
use spile_limiter::{Ask, RateLimiter, SettleError};
use spile_policy::{Chain, identity};
use spile_testkit::table::axes::{CostKind, KeysKind, OperationKind, ShapeKind, StateKind};
use spile_testkit::table::oracle::{PlainQuestion, PlainReply, PlainStatus, TOKEN};
use spile_testkit::table::{TableCell, TableSubject, TableSummary, try_every_cell_on};

use crate::network::{Clocks, RemoteStore};

/// The source that the answers of a limiter come from, as far as it has them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    /// The store: nothing is remembered, and nothing is leased.
    Store,
    /// Denials are remembered.
    DenyCache,
    /// Rates are leased, and denials are remembered.
    Lease,
    /// The store fails, and each of two instances has half of every limit.
    Local,
}

/// A limiter between the table and the store, which have different clocks.
struct ThroughLimiter {
    source: Source,
    clocks: Clocks,
    /// The clock of the store that decides.
    clock: FakeClock,
    /// Its time when the limiter's clock last followed it.
    seen: Micros,
    store: RemoteStore,
    limiter: RateLimiter<RemoteStore>,
    /// How long tasks in the background have not run for.
    passed: Duration,
    /// The number of questions at this moment.
    asked: usize,
    /// The number of decisions by source.
    decided: [usize; 5],
    /// The amount that a lease held while a late charge left it uncovered, or while a refund of more than was spent filled its place.
    leased: i128,
    /// True once the store kept what the oracle spent: what follows cannot be compared.
    has_diverged: bool,
    diverged: usize,
}

impl ThroughLimiter {
    fn new(source: Source) -> Self {
        let clocks = Clocks::apart(2);
        let (store, limiter) = limiter(source, &clocks);
        // The embedded store of the policy `local` goes by the limiter's clock.
        let clock = clocks.of(usize::from(source == Source::Local));
        Self {
            source,
            seen: clock.now(),
            clocks,
            clock,
            store,
            limiter,
            passed: Duration::ZERO,
            asked: 0,
            decided: [0; 5],
            leased: 0,
            has_diverged: false,
            diverged: 0,
        }
    }

    /// The number of decisions that came from this source.
    const fn decided_by(&self, source: DecisionSource) -> usize {
        self.decided[source as usize]
    }

    /// The charges, under limits as callers configure them for this source.
    fn charges<'k>(&self, operation: OperationKind, charges: &Charges<'k>) -> Charges<'k> {
        let charge = |charge: &Charge<'k>| {
            let limit = NamedLimit::new(charge.limit().name().clone(), self.limit(charge.limit().limit()));
            match operation {
                OperationKind::Charge | OperationKind::Settle => {
                    Charge::late(charge.key(), limit, charge.cost())
                }
                _ => Charge::new(charge.key(), limit, charge.cost()).expect("the limit is as large"),
            }
        };
        Charges::new(charges.iter().map(charge)).expect("a sound chain")
    }

    fn limit(&self, limit: &Limit) -> Limit {
        let twice = |amount: Amount| amount + amount;
        let limit = match (self.source, limit.shape()) {
            (Source::Lease, Shape::Rate(rate)) => {
                let leased = Limit::per(rate.refill(), rate.period()).lease(Duration::from_millis(100));
                leased.burst(limit.capacity()).debt(limit.debt()).unit(limit.unit()).build()
            }
            (Source::Local, Shape::Rate(rate)) => {
                limit.resized(twice(limit.capacity()), twice(rate.refill()), rate.period())
            }
            (Source::Local, _) => limit.resized(twice(limit.capacity()), Amount::ZERO, Duration::ZERO),
            _ => Ok(*limit),
        };
        limit.expect("the limit is within bounds")
    }

    /// The reply that a decision amounts to.
    fn reply(&mut self, verdict: Verdict, amount: Amount, decision: &Decision) -> PlainReply {
        self.decided[decision.source() as usize] += 1;
        let buckets = decision.limits().iter().map(status).collect();
        let at = decision.at().get().into();
        PlainReply { verdict, amount: amount.micro().into(), at, buckets, settled: Vec::new() }
    }

    /// True if a reply gives no more than the oracle does. A lease may hold tokens that another question finds missing.
    fn is_covered(&mut self, question: &PlainQuestion, reply: &PlainReply, expected: &PlainReply) -> bool {
        if self.has_diverged {
            return true;
        }
        let is_late = matches!(question.operation, OperationKind::Charge | OperationKind::Settle);
        if is_late {
            self.leased += (reply.amount - expected.amount).max(0);
        }
        if question.operation.is_refund() {
            self.leased += i128::from(self.limiter.lease_stats().tokens) * TOKEN;
        }
        if reply.verdict != expected.verdict || !is_late && reply.amount != expected.amount {
            self.has_diverged = true;
            self.diverged += 1;
            return reply.verdict == Verdict::Denied || reply.amount < expected.amount || self.leased > 0;
        }
        reply.at == expected.at
            && reply.settled == expected.settled
            && question.charges.iter().zip(&reply.buckets).zip(&expected.buckets).all(
                |((charge, bucket), expected)| match charge.limit.shape.kind() {
                    ShapeKind::Rate => bucket.available <= expected.available + self.leased + 1,
                    ShapeKind::Quota | ShapeKind::Concurrency => bucket == expected,
                },
            )
    }

    fn decided(&mut self, decision: &Decision) -> PlainReply {
        self.reply(Verdict::done_if(decision.allowed()), Amount::ZERO, decision)
    }
}

fn limiter(source: Source, clocks: &Clocks) -> (RemoteStore, RateLimiter<RemoteStore>) {
    let store = RemoteStore::new(clocks);
    store.set_down(source == Source::Local);
    let limiter = RateLimiter::builder()
        .store(store.clone())
        .clock(clocks.of(1))
        .deny_cache(if source == Source::Store { Duration::ZERO } else { Duration::from_millis(100) })
        // So large that a bucket of ten tokens is leased.
        .lease_share(0.5)
        .on_failure(FailurePolicy::Local)
        .replicas(if source == Source::Local { 2 } else { 1 })
        .build();
    (store, limiter)
}

/// A bucket as a decision shows it.
fn status(status: &LimitStatus) -> PlainStatus {
    let us = |span: Duration| i128::try_from(span.as_micros()).expect("a time fits");
    let level = status.level() * status.limit().capacity().micro() as f64;
    let debt = status.owed().micro();
    PlainStatus {
        available: if debt > 0 { -i128::from(debt) } else { level.round() as i128 },
        retry_after: us(status.retry_after()),
        reset_after: us(status.reset_after()),
    }
}

impl TableSubject for ThroughLimiter {
    type Store = RemoteStore;

    const CAN_DAMAGE: bool = false;

    fn store(&self) -> &RemoteStore {
        &self.store
    }

    fn clock(&self) -> &FakeClock {
        &self.clock
    }

    fn clear(&mut self) {
        (self.store, self.limiter) = limiter(self.source, &self.clocks);
        self.seen = self.clock.now();
        (self.asked, self.leased, self.has_diverged) = (0, 0, false);
    }

    fn clock_moved(&mut self) {
        // Time passes here, too, while the clock of the store steps back.
        let passed = Duration::from_micros(self.clock.now().since_us(self.seen).max(1_000_000));
        self.seen = self.clock.now();
        if self.source != Source::Local {
            self.clocks.of(1).advance(passed);
        }
        self.passed += passed;
        self.asked = 0;
    }

    async fn forget(&mut self) {}

    async fn ask(&mut self, operation: Operation<'_>, charges: &Charges<'_>) -> PlainReply {
        tokio::time::sleep(std::mem::take(&mut self.passed)).await;
        self.asked += 1;
        let kind = OperationKind::of(&operation);
        let charges = self.charges(kind, charges);
        let limiter = self.limiter.clone();
        match operation {
            Operation::Spend => {
                let ruling = limiter.decide(charges).await;
                // Background work finishes before the next question.
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                self.decided(&ruling.into_decision().expect("it has charges"))
            }
            Operation::Peek => self.decided(&limiter.peek_charges(charges).await),
            Operation::SpendUpTo => {
                let partial = limiter.spend_up_to_charges(charges).await;
                self.reply(Verdict::done_if(partial.decision.allowed()), partial.granted, &partial.decision)
            }
            Operation::Charge => {
                let late = limiter.charge_late(charges).await.expect("the store answers");
                self.reply(Verdict::Done, late.uncovered, &late.decision)
            }
            Operation::Refund { spent, once: None } => {
                let decision = limiter.refund_charges(charges, spent).await.expect("the store answers");
                self.reply(Verdict::Done, Amount::ZERO, &decision)
            }
            Operation::Refund { spent, once: Some(id) } => {
                let refund =
                    limiter.refund_charges_once(charges, spent, id).await.expect("the store answers");
                let verdict = if refund.given { Verdict::Done } else { Verdict::Before };
                self.reply(verdict, Amount::ZERO, &refund.decision)
            }
            Operation::Reserve(id) => {
                let ruling = limiter.decide(Ask::from(charges).reserving(id)).await;
                self.decided(&ruling.into_decision().expect("it has charges"))
            }
            Operation::Settle(id, costs) => {
                let mut chain = Chain::new(None);
                for charge in charges.iter() {
                    let key = identity(charge.key().as_str()).expect("a sound key");
                    let amount = charge.cost().amount();
                    chain.charge_limit(&key, charge.limit().clone(), amount, false).expect("a sound chain");
                }
                let settled = limiter.settle_chain(&chain, id, |_| costs[0].amount()).await;
                let shown = self.decided(&limiter.peek_charges(charges).await);
                match settled {
                    Ok(settled) => PlainReply {
                        verdict: if settled.already { Verdict::Before } else { Verdict::Done },
                        amount: settled.uncovered.micro().into(),
                        settled: settled.costs.iter().map(|(_, amount)| amount.micro().into()).collect(),
                        ..shown
                    },
                    Err(SettleError::Expired) => PlainReply { verdict: Verdict::Expired, ..shown },
                    Err(why) => {
                        assert!(matches!(why, SettleError::Unknown), "{why}");
                        PlainReply { verdict: Verdict::Unknown, ..shown }
                    }
                }
            }
            Operation::Reset => {
                limiter.reset_charges(charges.clone()).await.expect("the store answers");
                let decision = limiter.peek_charges(charges).await;
                self.reply(Verdict::Done, Amount::ZERO, &decision)
            }
            Operation::Permit(..) => unreachable!("refused"),
        }
    }

    fn questions_before(&self) -> usize {
        // Buckets with this many questions at a moment are leased.
        if self.source == Source::Lease && self.asked < 30 { 10 } else { 0 }
    }

    fn is_right(
        &mut self,
        cell: TableCell,
        question: &PlainQuestion,
        reply: &PlainReply,
        expected: &PlainReply,
    ) -> bool {
        let mut shown = reply.clone();
        if question.operation == OperationKind::SpendUpTo && expected.verdict == Verdict::Denied {
            // A caller who got nothing waits for the first quantum.
            for (bucket, expected) in shown.buckets.iter_mut().zip(&expected.buckets) {
                bucket.retry_after = expected.retry_after;
            }
        }
        if self.source == Source::Lease {
            return self.is_covered(question, &shown, expected);
        }
        if cell.is_even { shown == *expected } else { shown.is_near(expected) }
    }

    fn refusal(&self, cell: TableCell) -> Option<&'static str> {
        let is_permit = cell.shape == ShapeKind::Concurrency
            || cell.state == StateKind::OtherShape && cell.shape == ShapeKind::Quota;
        if is_permit {
            return Some("a place is asked of the store");
        }
        if cell.operation == OperationKind::SpendUpTo && cell.cost == CostKind::Zero {
            return Some("a grant of nothing is a peek");
        }
        if self.source == Source::Lease && cell.shape == ShapeKind::Quota && cell.keys != KeysKind::Beside {
            return Some("a quota has no lease");
        }
        let changes_in_any_case =
            !matches!(cell.operation, OperationKind::Spend | OperationKind::Peek | OperationKind::SpendUpTo);
        if self.source == Source::Local && (changes_in_any_case || cell.state == StateKind::InDebt) {
            return Some("what a failed store has to change in any case is an error");
        }
        None
    }
}

/// Tries every cell on a limiter with this source.
async fn tried(source: Source, cells: TableSummary) -> ThroughLimiter {
    let mut subject = ThroughLimiter::new(source);
    assert_eq!(try_every_cell_on(&mut subject).await, cells);
    subject
}

const CELLS: TableSummary = TableSummary { tried: 5_220, refused: 16_380 };

#[tokio::test(start_paused = true)]
async fn decisions_of_the_store_are_those_of_the_oracle() {
    tried(Source::Store, CELLS).await;
}

#[tokio::test(start_paused = true)]
async fn cached_denials_are_those_of_the_oracle() {
    let subject = tried(Source::DenyCache, CELLS).await;
    assert!(subject.decided_by(DecisionSource::DenyCache) > 1_000);
}

#[tokio::test(start_paused = true)]
async fn decisions_without_the_store_are_those_of_the_oracle_for_a_share_of_each_limit() {
    let subject = tried(Source::Local, TableSummary { tried: 1_144, refused: 20_456 }).await;
    assert!(subject.decided_by(DecisionSource::Local) > 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_lease_admits_no_more_than_the_oracle() {
    let subject = tried(Source::Lease, TableSummary { tried: 4_005, refused: 17_595 }).await;
    assert!(subject.decided_by(DecisionSource::Lease) > 1_000);
    assert!(subject.diverged < 100, "{} cells were compared in part", subject.diverged);
}
