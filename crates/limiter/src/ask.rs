//! One question to the limiter: what a request owes, and options that differ from call to call.

use std::time::Duration;

use spile_core::{Charges, FailurePolicy, ReservationId};
use spile_policy::{Chain, Enforced, Owed};

use crate::limiter::Fallback;
use crate::observer::RuleName;

/// One question to [`decide`](crate::RateLimiter::decide): what a request owes, and how to ask about it.
///
/// It is made of an [`Owed`], of a [`Chain`], or of [`Charges`] that the caller made.
#[derive(Clone, Debug)]
#[must_use = "a question decides nothing until it is asked"]
pub struct Ask<'a> {
    /// The enforced charges. `None` if no limit applies.
    pub(crate) charges: Option<Charges<'a>>,
    /// Evaluated if the enforced charges allow the request.
    pub(crate) shadow: &'a [Chain],
    pub(crate) options: AskOptions<'a>,
}

/// Charges, who asks about them, and how: a question about at least one bucket.
#[derive(Clone, Debug)]
pub struct AskedCharges<'a> {
    pub(crate) charges: Charges<'a>,
    pub(crate) options: AskOptions<'a>,
}

/// Everything in a question except the charges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AskOptions<'a> {
    pub(crate) rule: Option<RuleName<'a>>,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) on_failure: Option<FailurePolicy>,
    pub(crate) shadow: bool,
    pub(crate) within: Option<Duration>,
    pub(crate) patience: Duration,
    pub(crate) holder: &'a str,
    /// Set if the caller renews and releases a permit by its id.
    pub(crate) leaves_permit: bool,
    pub(crate) action: AskedAction,
}

/// How the charges are used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum AskedAction {
    /// Spends them, and takes a permit of each concurrency.
    #[default]
    Spend,
    /// Spends nothing.
    Peek,
    /// Spends nothing of the enforced charges.
    PeekEnforced,
    /// Spends them so that they can be settled by this id.
    Reserve(ReservationId),
}

impl<'a> Ask<'a> {
    /// Names the rule that asks, for observers.
    #[inline]
    pub fn rule(mut self, rule: impl Into<RuleName<'a>>) -> Self {
        self.options.rule = Some(rule.into());
        self
    }

    /// Names the tenant that asks, for observers.
    #[inline]
    pub const fn tenant(mut self, tenant: &'a str) -> Self {
        self.options.tenant = Some(tenant);
        self
    }

    /// Decides by this policy, not by the limiter's, if the store fails.
    #[inline]
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.options.on_failure = Some(policy);
        self
    }

    /// Gives the store at most this long to answer, charges in shadow mode included. The limiter's own deadline still holds.
    #[inline]
    pub const fn within(mut self, deadline: Duration) -> Self {
        self.options.within = Some(deadline);
        self
    }

    /// Asks again for this long while too many requests wait for the store. That charges nothing twice, because the store was
    /// not asked. For questions that come in batches.
    #[inline]
    pub const fn retry_overloaded_for(mut self, patience: Duration) -> Self {
        self.options.patience = patience;
        self
    }

    /// Shadow mode: a request that would be denied passes, and nothing is spent for it. One that is allowed spends from the
    /// buckets of its charges: name their limits with [`shadowed`](spile_core::LimitName::shadowed), so that they are not
    /// those of an enforced question. A [`Chain`] in shadow mode does that by itself.
    #[inline]
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.options.shadow = shadow;
        self
    }

    /// Names the holder of a permit: up to [64 bytes](spile_core::PermitId::MAX_HOLDER_BYTES), which operators see.
    #[inline]
    pub const fn holder(mut self, holder: &'a str) -> Self {
        self.options.holder = holder;
        self
    }

    /// Does not renew a permit: the caller [leaves](crate::Permit::leave) it, and renews and releases it by its id.
    #[inline]
    pub const fn leaving_permit(mut self) -> Self {
        self.options.leaves_permit = true;
        self
    }

    /// Spends nothing and is not observed.
    #[inline]
    pub const fn peeking(mut self) -> Self {
        self.options.action = AskedAction::Peek;
        self
    }

    /// Peeks at the enforced charges: they spend nothing. Charges in shadow mode that spend something are spent.
    #[inline]
    pub const fn peeking_enforced(mut self) -> Self {
        self.options.action = AskedAction::PeekEnforced;
        self
    }

    /// Spends so that [`settle_chain`](crate::RateLimiter::settle_chain) can settle the chain by this id. Leases are not used.
    #[inline]
    pub const fn reserving(mut self, id: ReservationId) -> Self {
        self.options.action = AskedAction::Reserve(id);
        self
    }
}

/// The charges of a request, with the rule, the tenant and the failure policy of its enforced chain.
impl<'a> From<&'a Owed> for Ask<'a> {
    #[inline]
    fn from(owed: &'a Owed) -> Self {
        let Owed { enforced, shadow, .. } = owed;
        match enforced {
            Enforced::Charged(chain) => Self { shadow, ..Self::from(chain) },
            Enforced::Unlimited { rule, tenant } => {
                let (rule, tenant) = (rule.as_deref().map(RuleName::new), tenant.as_deref());
                let options = AskOptions { rule, tenant, ..AskOptions::default() };
                Self { charges: None, shadow, options }
            }
        }
    }
}

/// The charges of a chain, with its rule, tenant, mode and failure policy.
impl<'a> From<&'a Chain> for Ask<'a> {
    #[inline]
    fn from(chain: &'a Chain) -> Self {
        AskedCharges::from(chain).into()
    }
}

impl<'a> From<Charges<'a>> for Ask<'a> {
    #[inline]
    fn from(charges: Charges<'a>) -> Self {
        AskedCharges::from(charges).into()
    }
}

impl<'a> From<AskedCharges<'a>> for Ask<'a> {
    #[inline]
    fn from(AskedCharges { charges, options }: AskedCharges<'a>) -> Self {
        Self { charges: Some(charges), shadow: &[], options }
    }
}

impl<'a> AskedCharges<'a> {
    /// These charges with the rule, the tenant, the mode and the failure policy of a chain.
    #[inline]
    pub fn of(chain: &'a Chain, charges: Charges<'a>) -> Self {
        Self { charges, options: AskOptions::of(chain) }
    }

    /// Gives the store at most this long to answer. The limiter's own deadline still holds.
    #[must_use]
    #[inline]
    pub const fn within(mut self, deadline: Duration) -> Self {
        self.options.within = Some(deadline);
        self
    }
}

impl<'a> From<&'a Chain> for AskedCharges<'a> {
    #[inline]
    fn from(chain: &'a Chain) -> Self {
        Self::of(chain, chain.charges())
    }
}

impl<'a> From<Charges<'a>> for AskedCharges<'a> {
    #[inline]
    fn from(charges: Charges<'a>) -> Self {
        Self { charges, options: AskOptions::default() }
    }
}

impl<'a> AskOptions<'a> {
    #[inline]
    pub(crate) fn of(chain: &'a Chain) -> Self {
        Self {
            rule: chain.rule().map(RuleName::new),
            tenant: chain.tenant(),
            on_failure: chain.failure_policy(),
            shadow: chain.is_shadow(),
            ..Self::default()
        }
    }

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
