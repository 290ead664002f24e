//! What a request owes under one rule.

use smallvec::SmallVec;
use spile_core::{Charge, Charges, Cost, Key, Plan};
use spile_limiter::LimiterError;
use spile_tower::key::ResolvedKey;

use super::rule::Rule;

/// Who pays, and under which plans.
#[derive(Debug)]
pub(super) struct Due<'r> {
    pub(super) rule: &'r Rule,
    pub(super) key: ResolvedKey,
    pub(super) plans: SmallVec<[Plan; 1]>,
}

/// What a request owes. It is charged together or not at all.
pub(super) type Dues<'r> = SmallVec<[Due<'r>; 2]>;

/// The charges for these dues.
pub(super) fn charges<'d>(dues: &'d [Due<'_>]) -> Result<Charges<'d>, LimiterError> {
    if let [due] = dues
        && let [plan] = &*due.plans
        && let [limit] = plan.limits()
    {
        return Ok(Charge::new(Key::new(due.key.as_str())?, limit.clone(), due.rule.cost)?.into());
    }
    let mut all = Vec::new();
    for due in dues {
        push_charges(&mut all, due, due.rule.cost)?;
    }
    Ok(Charges::new(all)?)
}

fn push_charges<'d>(all: &mut Vec<Charge<'d>>, due: &'d Due<'_>, cost: Cost) -> Result<(), LimiterError> {
    let key = Key::new(due.key.as_str())?;
    for limit in due.plans.iter().flat_map(Plan::limits) {
        all.push(Charge::new(key, limit.clone(), cost)?);
    }
    Ok(())
}
