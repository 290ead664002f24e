//! A rule: which requests it matches, who pays, under which plans, how much, and what happens when the store fails.

mod host;
mod matcher;
mod method;

use smol_str::SmolStr;
use spile_core::{Cost, FailurePolicy, NameError, PlanName};

pub use self::host::{HostError, HostPattern, canonical as canonical_host};
pub use self::matcher::Matcher;
pub use self::method::is_misspelt;
use crate::key::KeyList;

/// Which requests are limited, who pays, under which plans, and how much.
///
/// ```
/// use http::Method;
/// use spile_core::Cost;
/// use spile_policy::{KeyList, Rule, RulePlans};
///
/// let mut writes = Rule::new("writes", RulePlans::tenant_or("free")?);
/// writes.matcher.path = Some("/scores/*".parse()?);
/// writes.matcher.methods = vec![Method::POST, Method::PUT, Method::DELETE];
/// writes.key = KeyList::parse(&["tenant", "ip"])?;
/// writes.cost = Cost::new(5)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name, in questions about it and in metrics.
    pub id: SmolStr,
    /// Which requests it is for.
    pub matcher: Matcher,
    /// Who pays.
    pub key: KeyList,
    /// Under which plans.
    pub plans: RulePlans,
    /// How many tokens a request spends.
    pub cost: Cost,
    /// Estimates and answers do not change the cost: for limits that count requests.
    pub fixed_cost: bool,
    /// The policy if the store fails, or `None` to use the choice of the policy.
    pub on_failure: Option<FailurePolicy>,
    /// Decides and counts, but never blocks.
    pub shadow: bool,
    /// Rules that are charged together with this one, all or nothing.
    pub also: Vec<SmolStr>,
    /// Further options of a rule for descriptors.
    pub descriptors: DescriptorOptions,
}

/// Options that only rules for Envoy's descriptors have.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DescriptorOptions {
    /// Their hits have been used already, and are charged whether or not they are there.
    pub late: bool,
    /// Of those in one request whose rules have this mode, one that passes is enough.
    pub any: bool,
    /// Rules that do not apply to other descriptors of a request that this rule applies to.
    pub replaces: Vec<SmolStr>,
}

impl Rule {
    /// A rule for every request. It charges the tenant, or else the address, one token under these plans.
    pub fn new(id: &str, plans: RulePlans) -> Self {
        Self {
            id: SmolStr::new(id),
            matcher: Matcher::default(),
            key: KeyList::default(),
            plans,
            cost: Cost::ONE,
            fixed_cost: false,
            on_failure: None,
            shadow: false,
            also: Vec::new(),
            descriptors: DescriptorOptions::default(),
        }
    }
}

/// Under which plans a rule charges.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RulePlans {
    /// These, for every caller.
    Listed(Vec<PlanName>),
    /// The plan of the tenant that asks.
    Tenant {
        /// The plan of anonymous callers, or `None` if the rule is only for tenants.
        anonymous: Option<PlanName>,
    },
    /// No plan: requests that the rule matches are not limited.
    Unlimited,
    /// No plan: requests that the rule matches are refused.
    Banned,
}

impl RulePlans {
    /// These plans, for every caller.
    pub fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, NameError> {
        names.into_iter().map(PlanName::new).collect::<Result<_, _>>().map(Self::Listed)
    }

    /// The plan of the tenant that asks, or this plan for anonymous callers.
    pub fn tenant_or(anonymous: &str) -> Result<Self, NameError> {
        Ok(Self::Tenant { anonymous: Some(PlanName::new(anonymous)?) })
    }

    /// The plans that the rule itself names.
    pub fn known(&self) -> &[PlanName] {
        match self {
            Self::Listed(plans) => plans,
            Self::Tenant { anonymous } => anonymous.as_slice(),
            Self::Unlimited | Self::Banned => &[],
        }
    }
}
