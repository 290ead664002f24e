//! What the server runs with. Every value here is one that works.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use smol_str::SmolStr;
use spile_core::{Cost, FailurePolicy, Limit, Plan, PlanName};

use crate::rule::Rule;

/// The rule that stands where nobody wrote one.
const DEFAULT_RULE: &str = "default";

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the server listens.
    pub listen: Listen,
    /// Where buckets live.
    pub store: StoreUrl,
    /// What is decided when the store fails.
    pub on_failure: FailurePolicy,
    pub(crate) plans: Vec<Plan>,
    pub(crate) rules: Vec<Rule>,
}

/// The addresses of the listeners.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    /// The decision API and the sample endpoint.
    pub http: SocketAddr,
    /// Health and metrics; never the same listener as callers.
    pub admin: SocketAddr,
}

/// Where buckets live, as it is written in a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// In this process.
    Memory,
}

impl Default for Config {
    /// What `spile serve` runs with when nothing is said: loopback only, the embedded store, three plans.
    fn default() -> Self {
        Self {
            listen: Listen::default(),
            store: StoreUrl::Memory,
            on_failure: FailurePolicy::default(),
            plans: default_plans(),
            rules: vec![default_rule()],
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { http: loopback(8080), admin: loopback(8081) }
    }
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "memory:" => Ok(Self::Memory),
            _ => Err(format!("`{text}` is no store that this build knows: write `memory:`")),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
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
