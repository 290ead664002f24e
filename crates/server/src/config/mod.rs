//! What the server runs with. Every value here is one that works.

mod listen;
mod store;

use smol_str::SmolStr;
use spile_core::{Cost, Limit, Plan, PlanName};

pub use self::listen::Listen;
pub use self::store::{StoreConfig, StoreUrl, TimeOf, UnknownStore};
use crate::rule::Rule;

/// The rule that stands where nobody wrote one.
const DEFAULT_RULE: &str = "default";

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the server listens.
    pub listen: Listen,
    /// Where buckets live.
    pub store: StoreConfig,
    pub(crate) plans: Vec<Plan>,
    pub(crate) rules: Vec<Rule>,
}

impl Default for Config {
    /// What `spile serve` runs with when nothing is said: loopback only, the embedded store, three plans.
    fn default() -> Self {
        Self {
            listen: Listen::default(),
            store: StoreConfig::default(),
            plans: default_plans(),
            rules: vec![default_rule()],
        }
    }
}

fn default_plans() -> Vec<Plan> {
    let plan = |name, capacity, per_second| Plan::new(name, Limit::per_second(per_second).burst(capacity));
    [plan("free", 10, 1), plan("pro", 100, 50), plan("enterprise", 500, 200)]
        .into_iter()
        .map(|plan| plan.expect("the default plans lie within every bound"))
        .collect()
}

fn default_rule() -> Rule {
    let free = PlanName::new("free").expect("`free` is a name");
    Rule {
        id: SmolStr::new_static(DEFAULT_RULE),
        plans: vec![free],
        cost: Cost::ONE,
        on_failure: None,
        shadow: false,
    }
}
