//! What a request owes once its rules have been read: keys, plans and costs, ready to be charged.

use std::sync::Arc;

use smallvec::SmallVec;
use spile_core::{Charge, Charges, Cost, Key, KeyError, NamedLimit};
use spile_limiter::LimiterError;

use crate::key::ResolvedKey;

/// What one rule asks of one key.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    pub(crate) key: ResolvedKey,
    /// The limits of the rule's plans, one plan after the other.
    pub(crate) limits: SmallVec<[NamedLimit; 1]>,
    pub(crate) cost: Cost,
}

impl Due {
    /// The names of the plans, each once.
    pub(crate) fn plans(&self) -> Vec<&str> {
        let mut plans: Vec<_> = self.limits.iter().map(plan_of).collect();
        plans.dedup();
        plans
    }
}

/// The plan that a limit belongs to: what stands before the slash in its name.
fn plan_of(limit: &NamedLimit) -> &str {
    let name = limit.name().as_str();
    name.split_once('/').map_or(name, |(plan, _)| plan)
}

/// What a request owes under all of its rules. It is charged together or not at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dues {
    pub(crate) list: SmallVec<[Due; 1]>,
    /// On whose behalf, for observers.
    pub(crate) tenant: Option<Arc<str>>,
}

/// The charges for these dues, each at what `price` makes of its cost.
pub(crate) fn charges(dues: &Dues, price: impl Fn(&Due) -> Cost) -> Result<Charges<'_>, LimiterError> {
    if let [due] = &*dues.list
        && let [limit] = &*due.limits
    {
        return Ok(Charge::new(key_of(due)?, limit.clone(), price(due))?.into());
    }
    let mut charges = Vec::new();
    for due in &dues.list {
        let (key, cost) = (key_of(due)?, price(due));
        for limit in &due.limits {
            charges.push(Charge::new(key, limit.clone(), cost)?);
        }
    }
    Charges::new(charges).map_err(LimiterError::from)
}

fn key_of(due: &Due) -> Result<Key<'_>, KeyError> {
    Key::new(due.key.as_str())
}
