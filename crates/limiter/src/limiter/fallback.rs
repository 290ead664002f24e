//! Decides if the store fails: the failure policy, and the embedded store of the policy `local`.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{
    Amount, Charge, Charges, Clock, Cost, Decision, DecisionSource, FailurePolicy, NamedLimit, Operation,
    PermitId, PermitStep, StoreError, Verdict,
};
use spile_memory::MemoryStore;

use super::PartialDecision;

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
    pub(crate) fn decide(
        &self,
        operation: Operation<'_>,
        charges: &Charges<'_>,
        policy: FailurePolicy,
        why: &StoreError,
    ) -> Decision {
        let (failure, now) = (why.reason(), self.clock.now());
        let decision = match policy {
            FailurePolicy::Deny => Decision::fail_closed(charges, failure, now, self.retry_after),
            FailurePolicy::Local => {
                let share = self.share_of(charges);
                let outcome = self.local.run(operation, &share).into_outcome();
                Decision::from_outcome(&share, &outcome, DecisionSource::Local).taken_locally(failure)
            }
            _ => Decision::fail_open(charges, failure, now),
        };
        decision.with_may_have_run(why.may_have_run() && !matches!(operation, Operation::Peek))
    }

    /// As many tokens as the policy lets the caller take, up to those asked for.
    pub(crate) fn spend_up_to(
        &self,
        charges: &Charges<'_>,
        asked: Cost,
        policy: FailurePolicy,
        why: &StoreError,
    ) -> PartialDecision {
        if policy == FailurePolicy::Local {
            let share = self.share_of(charges);
            let reply = self.local.run(Operation::SpendUpTo, &share);
            let PartialDecision { granted, decision } =
                PartialDecision::of(&share, reply.into(), DecisionSource::Local);
            let decision = decision.taken_locally(why.reason()).with_may_have_run(why.may_have_run());
            return PartialDecision { granted, decision };
        }
        let decision = self.decide(Operation::SpendUpTo, charges, policy, why);
        PartialDecision { granted: if decision.allowed() { asked.amount() } else { Amount::ZERO }, decision }
    }

    /// Renews or releases places that are counted here. False if they are not.
    pub(crate) fn permit(&self, charges: &Charges<'_>, id: &PermitId, step: PermitStep) -> bool {
        self.local.run(Operation::Permit(id, step), &self.share_of(charges)).verdict == Verdict::Done
    }

    /// The charges under this replica's share of each limit. A cost above the capacity of the share takes the whole share:
    /// refusing it for ever would turn an outage of the store into one of the service.
    fn share_of<'k>(&self, charges: &Charges<'k>) -> Charges<'k> {
        let share = |charge: &Charge<'k>| {
            let limit = charge.limit().limit().share_of(self.replicas);
            let cost = charge.cost().min(Cost::saturating(limit.capacity()));
            let named = NamedLimit::new(charge.limit().name().clone(), limit);
            Charge::late(charge.key(), named, cost)
        };
        Charges::distinct(charges.iter().map(share)).unwrap_or_else(|_| charges.clone())
    }
}
