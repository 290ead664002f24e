//! One question to the limiter: charges, and options that differ from call to call.

use std::time::Duration;

use spile_core::{Charges, FailurePolicy};
use spile_policy::Chain;

use crate::limiter::Fallback;
use crate::observer::RuleName;

/// One question to the limiter: charges, who asks, and what to do if the store fails.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    pub(crate) charges: Charges<'a>,
    pub(crate) options: AskOptions<'a>,
}

/// Everything in a question except the charges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AskOptions<'a> {
    pub(crate) rule: Option<RuleName<'a>>,
    pub(crate) tenant: Option<&'a str>,
    on_failure: Option<FailurePolicy>,
    pub(crate) shadow: bool,
    within: Option<Duration>,
    pub(crate) patience: Duration,
}

impl<'a> Ask<'a> {
    /// The charges.
    #[inline]
    pub const fn charges(&self) -> &Charges<'a> {
        &self.charges
    }

    /// Names the rule that asks, for observers.
    #[must_use]
    #[inline]
    pub fn rule(mut self, rule: impl Into<RuleName<'a>>) -> Self {
        self.options.rule = Some(rule.into());
        self
    }

    /// Names the tenant that asks, for observers.
    #[must_use]
    #[inline]
    pub const fn tenant(mut self, tenant: &'a str) -> Self {
        self.options.tenant = Some(tenant);
        self
    }

    /// Decides by this policy, not by the limiter's, if the store fails.
    #[must_use]
    #[inline]
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.options.on_failure = Some(policy);
        self
    }

    /// Gives the store at most this long to answer. The limiter's own deadline still holds.
    #[must_use]
    #[inline]
    pub const fn within(mut self, deadline: Duration) -> Self {
        self.options.within = Some(deadline);
        self
    }

    /// Asks again for this long while too many requests wait for the store. That charges nothing twice, because the store was
    /// not asked. For questions that come in batches.
    #[must_use]
    #[inline]
    pub const fn retry_overloaded_for(mut self, patience: Duration) -> Self {
        self.options.patience = patience;
        self
    }

    /// Shadow mode: a request that would be denied passes, and nothing is spent for it. One that is allowed spends from the
    /// buckets of its charges: name their limits with [`shadowed`](spile_core::LimitName::shadowed), so that they are not
    /// those of an enforced question. A [`Chain`] in shadow mode does that by itself.
    #[must_use]
    #[inline]
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.options.shadow = shadow;
        self
    }
}

impl<'a> Ask<'a> {
    /// These charges with the rule, the tenant, the mode and the failure policy of a chain.
    pub fn for_chain(chain: &'a Chain, charges: Charges<'a>) -> Self {
        let options = AskOptions {
            rule: chain.rule().map(RuleName::new),
            tenant: chain.tenant(),
            on_failure: chain.failure_policy(),
            shadow: chain.is_shadow(),
            within: None,
            patience: Duration::ZERO,
        };
        Self { charges, options }
    }
}

/// The charges of a chain, with its rule, tenant, mode and failure policy.
impl<'a> From<&'a Chain> for Ask<'a> {
    #[inline]
    fn from(chain: &'a Chain) -> Self {
        Self::for_chain(chain, chain.charges())
    }
}

impl AskOptions<'_> {
    /// The failure policy. Shadow mode never blocks, so `deny` becomes `allow`.
    pub(crate) fn policy(&self, fallback: &Fallback) -> FailurePolicy {
        match self.on_failure.unwrap_or(fallback.policy) {
            FailurePolicy::Deny if self.shadow => FailurePolicy::Allow,
            policy => policy,
        }
    }

    /// How long the store may take: the shorter of the limiter's deadline and this question's.
    pub(crate) fn deadline(&self, usual: Duration) -> Duration {
        self.within.map_or(usual, |within| within.min(usual))
    }
}

impl<'a> From<Charges<'a>> for Ask<'a> {
    #[inline]
    fn from(charges: Charges<'a>) -> Self {
        Self { charges, options: AskOptions::default() }
    }
}
