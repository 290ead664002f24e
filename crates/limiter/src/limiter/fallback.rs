//! Decides if the store fails: the failure policy, and the embedded store of the policy `local`.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{
    Amount, Charge, Charges, Clock, Cost, Decision, DecisionSource, FailurePolicy, NamedLimit, Operation,
    PermitId, PermitStep, Reply, SpendTime, StoreError, Verdict,
};
use spile_memory::MemoryStore;

use super::PartialDecision;
use crate::permit::PlacesIn;

/// The failure policy, and what it needs to decide without the store.
pub(crate) struct Fallback {
    pub(crate) policy: FailurePolicy,
    pub(crate) retry_after: Duration,
    pub(crate) replicas: u32,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) local: MemoryStore<Arc<dyn Clock>>,
}

impl Fallback {
    /// The decision in place of the store's.
    pub(crate) fn allow(&self, charges: &Charges<'_>, policy: FailurePolicy, why: &StoreError) -> Decision {
        let decision = match policy {
            FailurePolicy::Deny => self.refuse(charges, why),
            FailurePolicy::Local => self.decide(Operation::Spend, charges).taken_locally(why.reason()),
            _ => self.let_pass(charges, why),
        };
        decision.with_may_have_run(why.may_have_run())
    }

    /// The decision in place of the store's about a chain that takes a permit, and where its places are counted.
    pub(crate) fn acquire(
        &self,
        charges: &Charges<'_>,
        id: &PermitId,
        policy: FailurePolicy,
        why: &StoreError,
    ) -> (Decision, PlacesIn) {
        if policy != FailurePolicy::Local {
            return (self.allow(charges, policy, why), PlacesIn::Nowhere);
        }
        let decision = self.decide(Operation::Permit(id, PermitStep::Acquire), charges);
        (decision.taken_locally(why.reason()).with_may_have_run(why.may_have_run()), PlacesIn::Local)
    }

    /// Renews places that are counted here. False if they are not.
    pub(crate) fn renew(&self, charges: &Charges<'_>, id: &PermitId) -> bool {
        self.run(Operation::Permit(id, PermitStep::Renew), &self.share_of(charges)).verdict == Verdict::Done
    }

    /// Releases places that are counted here. False if they are not.
    pub(crate) fn release(&self, charges: &Charges<'_>, id: &PermitId) -> bool {
        self.run(Operation::Permit(id, PermitStep::Release(SpendTime::Unknown)), &self.share_of(charges))
            .verdict
            == Verdict::Done
    }

    /// Decides as [`allow`](Self::allow) does, and spends nothing.
    pub(crate) fn peek(&self, charges: &Charges<'_>, policy: FailurePolicy, why: &StoreError) -> Decision {
        match policy {
            FailurePolicy::Deny => self.refuse(charges, why),
            FailurePolicy::Local => self.decide(Operation::Peek, charges).taken_locally(why.reason()),
            _ => self.let_pass(charges, why),
        }
    }

    /// As many tokens as the policy lets the caller take, up to those asked for.
    pub(crate) fn spend_up_to(
        &self,
        charges: &Charges<'_>,
        asked: Cost,
        policy: FailurePolicy,
        why: &StoreError,
    ) -> PartialDecision {
        let PartialDecision { granted, decision } = match policy {
            FailurePolicy::Deny => {
                PartialDecision { granted: Amount::ZERO, decision: self.refuse(charges, why) }
            }
            FailurePolicy::Local => {
                let share = self.share_of(charges);
                let granted = self.run(Operation::SpendUpTo, &share).into();
                let granted = PartialDecision::of(&share, granted, DecisionSource::Local);
                PartialDecision { decision: granted.decision.taken_locally(why.reason()), ..granted }
            }
            _ => PartialDecision { granted: asked.amount(), decision: self.let_pass(charges, why) },
        };
        PartialDecision { granted, decision: decision.with_may_have_run(why.may_have_run()) }
    }

    fn run(&self, operation: Operation<'_>, share: &Charges<'_>) -> Reply {
        self.local.run(operation, share)
    }

    fn decide(&self, operation: Operation<'_>, charges: &Charges<'_>) -> Decision {
        let share = self.share_of(charges);
        let outcome = self.run(operation, &share).into_outcome();
        Decision::from_outcome(&share, &outcome, DecisionSource::Local)
    }

    fn let_pass(&self, charges: &Charges<'_>, why: &StoreError) -> Decision {
        Decision::fail_open(charges, why.reason(), self.clock.now())
    }

    fn refuse(&self, charges: &Charges<'_>, why: &StoreError) -> Decision {
        Decision::fail_closed(charges, why.reason(), self.clock.now(), self.retry_after)
    }

    /// The charges under this replica's share of each limit. A cost above the capacity of the share takes the whole share:
    /// refusing it for ever would turn an outage of the store into one of the service.
    fn share_of<'k>(&self, charges: &Charges<'k>) -> Charges<'k> {
        let share = |charge: &Charge<'k>| {
            let limit = charge.limit().limit().share_of(self.replicas);
            let cost = charge.cost().min(Cost::saturating(limit.capacity()));
            let named = NamedLimit::new(charge.limit().name().clone(), limit);
            Charge::new(charge.key(), named, cost)
        };
        let shares: Result<Vec<_>, _> = charges.iter().map(share).collect();
        shares.and_then(Charges::new).unwrap_or_else(|_| charges.clone())
    }
}
