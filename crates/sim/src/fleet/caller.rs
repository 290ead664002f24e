//! Callers: each asks one question, waits for the answer and reports it.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{Amount, Charges, Decision, RefundId, ReservationId, SpendTime};
use spile_limiter::{AcquireError, Ask, AskedCharges, EnforcedDecision, Ruling, Wait};
use spile_policy::{BucketCharge, Chain, identity};

use super::instance::{HeldReservation, Instance, SpentDecision};
use super::report::{Owed, Report, What, owed};
use crate::scenario::{Operation, PLAN_NAMES, Question, RefundTime};

/// The keys that pay, by their numbers. Some have to be encoded.
const KEYS: [&str; 5] = ["user:1", "10.0.0.1", "{eve}:100%", "acme", "2001:db8::/64"];
/// How many decisions an instance remembers for refunds.
const REMEMBERED: usize = 64;

/// A caller with a question.
pub(super) struct Caller {
    instance: Arc<Instance>,
    question: Question,
    number: u64,
    is_done: bool,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.report(if self.is_done { What::Ended } else { What::Abandoned });
    }
}

impl Caller {
    /// Asks a question in the background.
    pub(super) fn start(instance: &Arc<Instance>, question: Question, number: u64) {
        let caller = Self { instance: Arc::clone(instance), question, number, is_done: false };
        instance.spawn(async move {
            let mut caller = caller;
            let runtime = caller.instance.runtime.clone();
            let cancel = caller.question.cancel.map(|us| Duration::from_micros(us.into()));
            caller.is_done = match cancel {
                None => {
                    caller.ask().await;
                    true
                }
                Some(cancel) => runtime.timeout(cancel, Box::pin(caller.ask())).await.is_ok(),
            };
        });
    }

    fn report(&self, what: What) {
        let at = self.instance.scheduler.now();
        self.instance.reports.lock().push(Report {
            question: self.number,
            instance: self.instance.number,
            at,
            what,
        });
    }

    async fn ask(&self) {
        let chain = self.chain();
        if chain.is_empty() {
            return;
        }
        let takes_permit = chain.first_permit().is_some();
        match self.question.operation {
            Operation::Peek => {
                self.asks(&chain.charges());
                let decision = self.instance.limiter.peek_charges(&chain).await;
                self.report(What::Decided { decision, waited: false });
            }
            Operation::Charge => self.charge(&chain).await,
            Operation::Reset => {
                let charges = chain.charges_at(|_| Amount::ZERO);
                self.asks(&charges);
                self.report(What::Reset(self.instance.limiter.reset_charges(charges).await));
            }
            Operation::Refund { of, once, time } => self.refund(of, once, time).await,
            Operation::Settle { of, percent } => self.settle(of, percent).await,
            Operation::Release { of, waits } => self.release(of, waits).await,
            Operation::AcquireWhenReady(ms) if takes_permit && !self.question.shadow => {
                self.acquire_when_ready(&chain, ms).await;
            }
            _ if takes_permit => self.acquire(&chain).await,
            Operation::SpendUpTo => {
                let charges = chain.charges();
                self.asks(&charges);
                let partial = self.instance.limiter.spend_up_to_charges(&chain).await;
                self.report(What::Granted { granted: partial.granted.micro(), decision: partial.decision });
            }
            Operation::Reserve(seconds) => self.reserve(chain, seconds).await,
            Operation::UntilReady(ms) if !self.question.shadow => self.until_ready(&chain, ms).await,
            Operation::AllowAsTold(times) => self.allow(times).await,
            _ => self.allow(0).await,
        }
    }

    /// The charges of the question under the present plans. Empty if it cannot be charged.
    fn chain(&self) -> Chain {
        let mut chain = Chain::new(None).shadow(self.question.shadow);
        match self.charge_plans(&mut chain) {
            Some(()) => chain,
            None => Chain::new(None),
        }
    }

    fn charge_plans(&self, chain: &mut Chain) -> Option<()> {
        let Question { keys, plans, cost, .. } = &self.question;
        // No more than what can be covered, so that every question can pass.
        let mut most = i64::MAX;
        for plan in plans {
            let plan = spile_core::PlanRegistry::plan(&*self.instance.plans, PLAN_NAMES[usize::from(*plan)])?;
            let rates = plan.limits().iter().filter(|limit| !limit.limit().is_concurrency());
            most = rates.map(|limit| limit.limit().capacity().micro()).fold(most, i64::min);
        }
        for key in keys {
            let key = identity(KEYS[usize::from(*key)]).ok()?;
            for plan in plans {
                let plan = PLAN_NAMES[usize::from(*plan)];
                let cost = Amount::from_micro((*cost).min(most));
                self.instance.limiter.extend_chain(chain, &key, plan, cost).ok()?;
            }
        }
        Some(())
    }

    fn asks(&self, charges: &Charges<'_>) -> Vec<Owed> {
        let charges = owed(charges);
        let Question { operation, shadow, .. } = self.question;
        self.report(What::Asks { operation, charges: charges.clone(), shadow });
        charges
    }

    /// Spends. After a denial it waits for the reported time and asks again, up to `times` times.
    async fn allow(&self, again: u8) {
        let mut waited = false;
        for attempt in 0..=again {
            let chain = self.chain();
            if chain.is_empty() {
                return;
            }
            let charges = self.asks(&chain.charges());
            let ruling = self.instance.limiter.decide(&chain).await;
            let Some(decision) = ruling.into_decision() else { return };
            self.decided(&chain, &charges, &decision, waited);
            if decision.allowed() || decision.degraded() || attempt == again {
                return;
            }
            let told = decision.retry_after();
            if told > Duration::from_secs(5) {
                return;
            }
            self.instance.runtime.sleep(told).await;
            waited = true;
        }
    }

    async fn until_ready(&self, chain: &Chain, ms: u32) {
        let (limiter, wait) = (&self.instance.limiter, Wait::at_most(Duration::from_millis(ms.into())));
        let plans: Vec<&str> =
            self.question.plans.iter().map(|plan| PLAN_NAMES[usize::from(*plan)]).collect();
        let (Some(key), [plan]) = (self.question.keys.first(), plans.as_slice()) else { return };
        let key = KEYS[usize::from(*key)];
        let own: Vec<_> = chain.charged().filter(|(charged, _)| charged.as_key().as_str() == key).collect();
        let cost = own.iter().map(|(_, bucket)| bucket.cost()).max().unwrap_or_default();
        let Ok(charges) = limiter.charges(key, *plan, cost) else { return };
        self.asks(&charges);
        if let Ok(decision) = limiter.until_ready(key, *plan, cost, wait).await {
            self.report(What::Decided { decision, waited: false });
        }
    }

    fn decided(&self, chain: &Chain, charges: &[Owed], decision: &Decision, waited: bool) {
        if let Some(at) = decision.charged_at() {
            let mut held = self.instance.held.lock();
            if held.spent.len() >= REMEMBERED {
                held.spent.remove(0);
            }
            held.spent.push(SpentDecision {
                number: self.number,
                chain: Arc::new(chain.clone()),
                charges: charges.to_vec(),
                at: SpendTime::At(at),
                named: false,
            });
        }
        self.report(What::Decided { decision: decision.clone(), waited });
    }

    async fn charge(&self, chain: &Chain) {
        // More than the capacity, too.
        let cost = Amount::from_micro(self.question.cost);
        let charges = chain.late_charges(|_| cost);
        self.asks(&charges);
        let asked = AskedCharges::of(chain, charges);
        let result = self.instance.limiter.charge_late(asked).await;
        self.report(What::Charged(result.map(drop)));
    }

    async fn refund(&self, of: u16, once: bool, time: RefundTime) {
        let spent = {
            let mut held = self.instance.held.lock();
            let Some(last) = held.spent.len().checked_sub(1) else { return };
            let at = last - usize::from(of) % (last + 1);
            let is_named = held.spent[at].named || once;
            if is_named {
                held.spent[at].named = true;
                held.spent[at].clone()
            } else {
                held.spent.remove(at)
            }
        };
        let charges = spent.chain.charges_at(BucketCharge::cost);
        let name = spent.named.then_some(spent.number);
        let operation = self.question.operation;
        self.report(What::Refunds { spent: spent.number, charges: spent.charges.clone(), name, operation });
        let at = match time {
            RefundTime::Known => spent.at,
            RefundTime::Unknown => SpendTime::Unknown,
            RefundTime::ThisWindow => SpendTime::ThisWindow,
        };
        let limiter = &self.instance.limiter;
        let refunded = match name {
            None => limiter.refund_charges(charges, at).await.map(|_| true),
            Some(number) => {
                let id = number.to_string();
                let id = RefundId::new(&id).expect("digits are an id");
                limiter.refund_charges_once(charges, at, id).await.map(|refunded| refunded.given)
            }
        };
        self.report(What::Refunded(refunded));
    }

    async fn reserve(&self, chain: Chain, seconds: u32) {
        let charges = self.asks(&chain.charges());
        let random = self.instance.runtime.random_id();
        let id =
            ReservationId::new(random, Duration::from_secs(seconds.into())).expect("a time within bounds");
        let reservation = HeldReservation { number: self.number, id, chain: Arc::new(chain), charges };
        let ruling = self.instance.limiter.decide(Ask::from(&*reservation.chain).reserving(id)).await;
        let Some(decision) = ruling.into_decision() else { return };
        if decision.allowed() {
            let mut held = self.instance.held.lock();
            if held.reservations.len() >= REMEMBERED {
                held.reservations.remove(0);
            }
            held.reservations.push(reservation);
        }
        self.report(What::Reserved { reservation: self.number, decision });
    }

    async fn settle(&self, of: u16, percent: u16) {
        let reservation = {
            let held = self.instance.held.lock();
            // Most are settled soon, and some twice.
            let Some(last) = held.reservations.len().checked_sub(1) else { return };
            held.reservations[last - usize::from(of) % (last + 1).min(4)].clone()
        };
        let number = reservation.number;
        let plans = &self.instance.plans;
        let in_force = |_: &_, name: &spile_core::LimitName| {
            let plan = spile_core::PlanRegistry::plan(&**plans, name.as_str().split('/').next()?)?;
            plan.limits().iter().find(|limit| limit.name() == name).map(|limit| *limit.limit())
        };
        let chain = Chain::clone(&reservation.chain).settling(in_force);
        let amount = |cost: i64| cost / 100 * i64::from(percent);
        let amounts = reservation.charges.iter().map(|charge| amount(charge.cost)).collect();
        let charges = reservation.charges.clone();
        self.report(What::Settles { reservation: number, charges, amounts });
        let limiter = &self.instance.limiter;
        let settled = limiter
            .settle_chain(&chain, reservation.id, |bucket| Amount::from_micro(amount(bucket.cost().micro())));
        let result = settled.await.map(|settled| {
            (settled.already, settled.costs.into_iter().map(|(_, cost)| cost.micro()).collect())
        });
        self.report(What::Settled { reservation: number, result });
    }

    async fn acquire(&self, chain: &Chain) {
        self.asks(&chain.charges());
        let Ruling { enforced: EnforcedDecision::Decided(decision), permit, .. } =
            self.instance.limiter.decide(chain).await
        else {
            return;
        };
        let id = permit.as_ref().map(|permit| permit.id().as_str().to_owned());
        if let (Some(id), Some(permit)) = (&id, permit) {
            self.instance.held.lock().permits.push((id.clone(), *permit));
        }
        self.report(What::Acquired { decision, permit: id });
    }

    async fn acquire_when_ready(&self, chain: &Chain, ms: u32) {
        let key = KEYS[usize::from(self.question.keys[0])];
        let plan = PLAN_NAMES[usize::from(self.question.plans[0])];
        if self.question.keys.len() + self.question.plans.len() > 2 {
            return self.acquire(chain).await;
        }
        let limiter = &self.instance.limiter;
        let Ok(charges) = limiter.charges(key, plan, 1) else { return };
        self.asks(&charges);
        let wait = Wait::at_most(Duration::from_millis(ms.into()));
        match limiter.acquire_when_ready(key, plan, wait).await {
            Ok(permit) => {
                let (id, decision) = (permit.id().as_str().to_owned(), permit.decision().clone());
                self.instance.held.lock().permits.push((id.clone(), permit));
                self.report(What::Acquired { decision, permit: Some(id) });
            }
            Err(AcquireError::Denied(decision)) => {
                self.report(What::Acquired { decision: *decision, permit: None });
            }
            Err(_) => {}
        }
    }

    async fn release(&self, of: u16, waits: bool) {
        let (id, permit) = {
            let mut held = self.instance.held.lock();
            let Some(last) = held.permits.len().checked_sub(1) else { return };
            held.permits.remove(usize::from(of) % (last + 1))
        };
        if waits {
            let _answered = permit.release().await;
        } else {
            drop(permit);
        }
        self.report(What::Released { permit: id });
    }
}
