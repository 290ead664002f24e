//! One question to the limiter, with everything that may differ from call to call.

use std::time::Duration;

use spile_core::{Charges, FailurePolicy};
use spile_policy::Chain;

use crate::limiter::Fallback;
use crate::observer::RuleName;

/// What is asked: the charges, and on whose behalf.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    pub(crate) charges: Charges<'a>,
    pub(crate) terms: Terms<'a>,
}

/// How it is asked, apart from what.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms<'a> {
    pub(crate) rule: Option<RuleName<'a>>,
    pub(crate) tenant: Option<&'a str>,
    on_failure: Option<FailurePolicy>,
    pub(crate) shadow: bool,
    within: Option<Duration>,
    pub(crate) patience: Duration,
}

impl<'a> Ask<'a> {
    /// What is to be paid.
    #[inline]
    pub const fn charges(&self) -> &Charges<'a> {
        &self.charges
    }

    /// Names the rule that asks, for observers.
    #[must_use]
    #[inline]
    pub fn rule(mut self, rule: impl Into<RuleName<'a>>) -> Self {
        self.terms.rule = Some(rule.into());
        self
    }

    /// Names the tenant that asks, for observers.
    #[must_use]
    #[inline]
    pub const fn tenant(mut self, tenant: &'a str) -> Self {
        self.terms.tenant = Some(tenant);
        self
    }

    /// Decides by this policy, not the limiter's, where the store fails.
    #[must_use]
    #[inline]
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.terms.on_failure = Some(policy);
        self
    }

    /// Gives the store no longer than this, where the limiter would give it more.
    #[must_use]
    #[inline]
    pub const fn within(mut self, deadline: Duration) -> Self {
        self.terms.within = Some(deadline);
        self
    }

    /// Asks again for so long while the store is too busy to be asked, which costs nothing: for one of many questions that
    /// come together.
    #[must_use]
    #[inline]
    pub const fn retry_overloaded_for(mut self, patience: Duration) -> Self {
        self.terms.patience = patience;
        self
    }

    /// Only watches: what would be denied is spent on nobody and let pass.
    #[must_use]
    #[inline]
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.terms.shadow = shadow;
        self
    }
}

impl<'a> Ask<'a> {
    /// These charges on the terms of a chain: its rule, its tenant, its failure policy.
    pub fn on_terms_of(chain: &'a Chain, charges: Charges<'a>) -> Self {
        let terms = Terms {
            rule: chain.rule().map(RuleName::new),
            tenant: chain.tenant(),
            on_failure: chain.failure_policy(),
            shadow: chain.is_shadow(),
            within: None,
            patience: Duration::ZERO,
        };
        Self { charges, terms }
    }
}

/// What a chain of charges asks.
impl<'a> From<&'a Chain> for Ask<'a> {
    #[inline]
    fn from(chain: &'a Chain) -> Self {
        Self::on_terms_of(chain, chain.charges())
    }
}

impl Terms<'_> {
    /// The failure policy. A rule that only watches never blocks, so `deny` becomes `allow`.
    pub(crate) fn policy(&self, fallback: &Fallback) -> FailurePolicy {
        match self.on_failure.unwrap_or(fallback.policy) {
            FailurePolicy::Deny if self.shadow => FailurePolicy::Allow,
            policy => policy,
        }
    }

    /// How long the store may take, of what the limiter gives it.
    pub(crate) fn deadline(&self, usual: Duration) -> Duration {
        self.within.map_or(usual, |within| within.min(usual))
    }
}

impl<'a> From<Charges<'a>> for Ask<'a> {
    #[inline]
    fn from(charges: Charges<'a>) -> Self {
        Self { charges, terms: Terms::default() }
    }
}
