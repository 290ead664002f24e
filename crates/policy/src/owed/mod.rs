//! The debt of a request: charges, or none.

mod chain;
mod refusal;

use smol_str::SmolStr;

pub use self::chain::{BucketCharge, Chain};
pub use self::refusal::PolicyRefusal;
use crate::policy::AskError;

/// The charges of a request, and whether it is refused even if it can pay.
#[derive(Clone, Debug, Default)]
pub struct Owed {
    /// Decides about the request.
    pub enforced: Enforced,
    /// The charges of rules in shadow mode, evaluated if `enforced` allows the request. Each is independent of the others.
    pub shadow: Vec<Chain>,
    /// Why the request is refused even if `enforced` allows it.
    pub refusal: Option<PolicyRefusal>,
}

/// The part that decides about a request.
#[derive(Clone, Debug)]
pub enum Enforced {
    /// These charges, all of them or none. There is at least one.
    Charged(Chain),
    /// Nothing: no limit applies.
    Unlimited {
        /// The rule that says so. `None` if no rule matches, or if the request is refused.
        rule: Option<SmolStr>,
        /// The tenant that sent the request.
        tenant: Option<SmolStr>,
    },
}

impl Default for Enforced {
    fn default() -> Self {
        Self::Unlimited { rule: None, tenant: None }
    }
}

/// The charges of a question about one rule, in the mode of that rule.
impl From<Chain> for Owed {
    fn from(chain: Chain) -> Self {
        if !chain.is_shadow() {
            return Self { enforced: chain.into(), ..Self::default() };
        }
        let shadow = if chain.is_empty() { Vec::new() } else { vec![chain] };
        Self { shadow, ..Self::default() }
    }
}

impl Owed {
    /// Every chain: the enforced one first, if there is one.
    pub fn chains(&self) -> impl Iterator<Item = &Chain> {
        let enforced = match &self.enforced {
            Enforced::Charged(chain) => Some(chain),
            Enforced::Unlimited { .. } => None,
        };
        enforced.into_iter().chain(&self.shadow)
    }

    /// How many buckets are charged, in either mode.
    pub fn bucket_count(&self) -> usize {
        self.chains().map(|chain| chain.buckets().len()).sum()
    }

    /// Whether nothing is charged, in either mode.
    pub fn is_empty(&self) -> bool {
        self.chains().next().is_none()
    }

    /// Fails if it takes a permit: for questions that could not release one.
    pub fn without_permit(self) -> Result<Self, AskError> {
        let limit = self.chains().find_map(Chain::first_permit).map(|limit| limit.name().clone());
        limit.map_or(Ok(self), |limit| Err(AskError::NeedsPermit(limit)))
    }

    /// Fails if it takes no permit.
    pub fn with_permit(self) -> Result<Self, AskError> {
        let has_permit = self.chains().any(|chain| chain.first_permit().is_some());
        if has_permit { Ok(self) } else { Err(AskError::NoConcurrency) }
    }
}
