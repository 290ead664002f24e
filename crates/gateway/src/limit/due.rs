//! What a request owes under one rule.

use std::sync::Arc;

use smallvec::SmallVec;
use spile_core::{Charge, Charges, Cost, Key, Limit, NamedLimit, Plan};
use spile_limiter::LimiterError;
use spile_tower::key::ResolvedKey;

use super::rule::Rule;

/// Who pays, and under which plans.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) rule: Arc<Rule>,
    pub(super) key: ResolvedKey,
    pub(super) plans: SmallVec<[Plan; 1]>,
}

/// What a request owes. It is charged together or not at all.
pub(super) type Dues = SmallVec<[Due; 1]>;

/// The charges for these dues at these costs, under limits that are multiplied by `factor`. A bucket that two rules
/// charge is charged once, at the higher cost.
pub(super) fn charges(
    dues: &[Due],
    cost: impl Fn(&Due) -> Cost,
    factor: f64,
) -> Result<Charges<'_>, LimiterError> {
    if let [due] = dues
        && let [plan] = &*due.plans
        && let [limit] = plan.limits()
    {
        return Ok(charge(due, limit, cost(due), factor)?.into());
    }
    let mut all: Vec<Charge<'_>> = Vec::new();
    for due in dues {
        for limit in due.plans.iter().flat_map(Plan::limits) {
            let charge = charge(due, limit, cost(due), factor)?;
            let same = |earlier: &&mut Charge<'_>| {
                earlier.key() == charge.key() && earlier.limit().name() == charge.limit().name()
            };
            match all.iter_mut().find(same) {
                None => all.push(charge),
                Some(earlier) if earlier.cost() < charge.cost() => *earlier = charge,
                Some(_) => {}
            }
        }
    }
    Ok(Charges::new(all)?)
}

/// What one key was charged under one plan.
#[derive(Debug)]
pub(super) struct Account<'d> {
    pub(super) key: &'d str,
    pub(super) plan: &'d Plan,
    pub(super) charged: u64,
}

impl<'d> Account<'d> {
    /// So many tokens of it, as far as every limit of the plan could ever hold them.
    pub(super) fn charges(&self, tokens: u64) -> Result<Charges<'d>, LimiterError> {
        let limits = self.plan.limits();
        let most = limits.iter().map(|limit| u64::from(limit.limit().capacity())).min().unwrap_or(0);
        let (key, cost) = (Key::new(self.key)?, Cost::new(tokens.min(most))?);
        let charges = limits.iter().map(|limit| Charge::new(key, limit.clone(), cost));
        Ok(Charges::new(charges.collect::<Result<Vec<_>, _>>()?)?)
    }
}

/// Each key and plan once, with what was charged: where two rules charge the same, that is the higher cost.
pub(super) fn accounts(dues: &[Due]) -> Vec<Account<'_>> {
    let mut accounts: Vec<Account<'_>> = Vec::new();
    for due in dues {
        let (key, cost) = (due.key.as_str(), u64::from(due.rule.cost.get()));
        for plan in &due.plans {
            let same = |account: &&mut Account<'_>| account.key == key && account.plan.name() == plan.name();
            match accounts.iter_mut().find(same) {
                Some(account) => account.charged = account.charged.max(cost),
                None => accounts.push(Account { key, plan, charged: cost }),
            }
        }
    }
    accounts
}

fn charge<'d>(due: &'d Due, limit: &NamedLimit, cost: Cost, factor: f64) -> Result<Charge<'d>, LimiterError> {
    let limit = if factor < 1.0 { scaled(limit, cost, factor) } else { limit.clone() };
    Ok(Charge::new(Key::new(due.key.as_str())?, limit, cost)?)
}

/// The limit with its rate and burst cut, though never so far that the cost itself could not be covered. The bucket
/// stays the same one, so that tokens are neither lost nor found when the factor changes.
fn scaled(limit: &NamedLimit, cost: Cost, factor: f64) -> NamedLimit {
    let whole = limit.limit();
    let capacity = (f64::from(whole.capacity()) * factor) as u64;
    let capacity = capacity.max(u64::from(cost.get())).max(1);
    let cut = Limit::per_second_f64(whole.rate() * factor, capacity);
    cut.map_or_else(|_| limit.clone(), |cut| NamedLimit::new(limit.name().clone(), cut))
}
