//! What one decision is to charge, put together limit by limit.

use smallvec::SmallVec;
use spile_core::{Charge, ChargeError, Charges, Cost, Key, NamedLimit};

use crate::fault::Fault;
use crate::policies::Policies;

/// Charges that are not yet a chain. The usual one stays in place, without a trip to the allocator.
#[derive(Debug, Default)]
pub(crate) struct Bill<'k>(SmallVec<[Charge<'k>; 1]>);

impl<'k> Bill<'k> {
    /// Adds every limit of the plan.
    pub(crate) fn add_plan(
        &mut self,
        key: Key<'k>,
        plan: &str,
        cost: Cost,
        policies: &Policies,
    ) -> Result<(), Fault> {
        let plan = policies.plan(plan).ok_or_else(|| unknown_plan(plan))?;
        plan.limits().iter().try_for_each(|limit| self.add(key, limit.clone(), cost))
    }

    pub(crate) fn add(&mut self, key: Key<'k>, limit: NamedLimit, cost: Cost) -> Result<(), Fault> {
        self.0.push(Charge::new(key, limit, cost).map_err(fault)?);
        Ok(())
    }

    /// The chain: at least one charge, and no bucket twice.
    pub(crate) fn into_charges(self) -> Result<Charges<'k>, Fault> {
        Charges::new(self.0).map_err(fault)
    }
}

fn unknown_plan(name: &str) -> Fault {
    let shown: String = name.chars().take(64).collect();
    Fault::new("plans", format_args!("no plan is called {shown:?}"))
}

fn fault(why: ChargeError) -> Fault {
    let field = if matches!(why, ChargeError::CostAboveCapacity { .. }) { "cost" } else { "plans" };
    Fault::new(field, why)
}
