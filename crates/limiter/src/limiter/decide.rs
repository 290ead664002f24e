//! The entry: decides what a request owes. Every door asks here.

use std::sync::Arc;

use futures_util::future::join_all;
use spile_core::{Amount, Decision, LimitName, Store, StoreError};
use spile_policy::{BucketCharge, Chain, Enforced, Owed};

use super::inner::LimiterInner;
use super::{RateLimiter, Settled};
use crate::ask::{Ask, AskOptions, AskedAction, AskedCharges};
use crate::lease::LeaseQuestion;
use crate::permit::{Permit, ReleaseWork};

/// The answer to an [`Ask`].
#[derive(Debug)]
#[must_use = "a ruling that is not looked at limits no request"]
#[non_exhaustive]
pub struct Ruling {
    /// Decides about the request.
    pub enforced: EnforcedDecision,
    /// The decisions of rules in shadow mode, in the order in which they were asked about. Empty if the request is denied.
    pub shadow: Vec<ShadowDecision>,
    /// The permit that was taken. `None` if no limit is a concurrency, or if the request is denied.
    pub permit: Option<Box<Permit>>,
}

/// Decides about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum EnforcedDecision {
    /// Its limits decided.
    Decided(Decision),
    /// No limit applies, so that it is allowed.
    Unlimited,
}

/// The decision of a rule in shadow mode, which blocks nothing.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ShadowDecision {
    /// The rule.
    pub rule: String,
    /// The decision, which allows the request in any case.
    pub decision: Decision,
}

impl ShadowDecision {
    /// The decision about a chain in shadow mode.
    pub fn of(chain: &Chain, decision: Decision) -> Self {
        Self { rule: chain.rule().unwrap_or_default().to_owned(), decision }
    }

    /// Whether the rule would let the request pass if it was enforced.
    pub fn would_allow(&self) -> bool {
        self.limited_by().is_none()
    }

    /// The limit that would deny the request, by its name outside of shadow mode.
    pub fn limited_by(&self) -> Option<&str> {
        self.decision.limited_by().map(LimitName::unshadowed)
    }

    /// How long the request would have to wait. Zero if it would pass.
    pub fn retry_after(&self) -> std::time::Duration {
        if self.would_allow() { std::time::Duration::ZERO } else { self.decision.binding().retry_after() }
    }
}

impl EnforcedDecision {
    /// The decision. `None` if the request is unlimited.
    pub const fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Decided(decision) => Some(decision),
            Self::Unlimited => None,
        }
    }

    /// Whether the request may proceed.
    pub const fn allowed(&self) -> bool {
        match self {
            Self::Decided(decision) => decision.allowed(),
            Self::Unlimited => true,
        }
    }

    /// The reason, by its name in the API.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Decided(decision) => decision.reason().as_str(),
            Self::Unlimited => "unlimited",
        }
    }
}

impl Ruling {
    /// Nothing limits the request.
    pub const UNLIMITED: Self = Self::of(EnforcedDecision::Unlimited);

    /// The answer to a question about one chain: `decision` is enforced, or of a rule in shadow mode.
    pub fn by(chain: &Chain, decision: Decision) -> Self {
        if chain.is_shadow() {
            return Self { shadow: vec![ShadowDecision::of(chain, decision)], ..Self::UNLIMITED };
        }
        Self::of(EnforcedDecision::Decided(decision))
    }

    #[inline]
    const fn of(enforced: EnforcedDecision) -> Self {
        Self { enforced, shadow: Vec::new(), permit: None }
    }

    /// Whether the request may proceed.
    pub const fn allowed(&self) -> bool {
        self.enforced.allowed()
    }

    /// Every decision: the enforced one first, unless the request is unlimited.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.enforced.decision().into_iter().chain(self.shadow.iter().map(|watched| &watched.decision))
    }

    /// The enforced decision. `None` if the request is unlimited.
    pub fn into_decision(self) -> Option<Decision> {
        match self.enforced {
            EnforcedDecision::Decided(decision) => Some(decision),
            EnforcedDecision::Unlimited => None,
        }
    }

    /// The reason of the decision, by its name in the API.
    pub const fn reason(&self) -> &'static str {
        self.enforced.reason()
    }
}

impl<S: Store> RateLimiter<S> {
    /// Decides as [`decide`](Self::decide) does, without a future: the store is in memory, or no limit applies.
    ///
    /// `None` means that nothing was decided and that `decide` has to be called: the store has to be waited for, or the question
    /// takes a permit or has charges in shadow mode.
    #[inline]
    pub fn decide_now(&self, ask: &Ask<'_>) -> Option<Ruling> {
        if !ask.shadow.is_empty() || !matches!(ask.options.action, AskedAction::Spend) {
            return None;
        }
        Some(Ruling::of(match &ask.charges {
            Some(charges) if charges.first_permit().is_none() => {
                EnforcedDecision::Decided(self.inner.spend_at_once(charges, &ask.options)?)
            }
            Some(_) => return None,
            None => {
                self.inner.count_unlimited(&ask.options);
                EnforcedDecision::Unlimited
            }
        }))
    }

    /// Spends charges that take no permit: from leases or by a cached denial if possible, else from the store.
    pub(super) async fn spend(&self, asked: AskedCharges<'_>) -> Decision {
        let AskedCharges { charges, options } = &asked;
        if let Some(decision) = self.inner.spend_at_once(charges, options) {
            return decision;
        }
        match self.inner.decide_locally(charges, options, LeaseQuestion::Alone, false) {
            Ok(decision) => decision,
            Err(share) => self.inner.wait_for(asked, share).await,
        }
    }
}

impl<S: Store + 'static> RateLimiter<S> {
    /// Decides what a request owes.
    ///
    /// The enforced charges are spent, all of them or none, together with a permit of each concurrency. If that allows the request,
    /// each chain in shadow mode is evaluated by itself in the remaining time of the same deadline. A failing store is never an
    /// error: the failure policy turns it into a decision that says so, and in shadow mode it changes nothing.
    ///
    /// [`decide_now`](Self::decide_now) spares the future where the store is in memory.
    pub fn decide<'a>(&'a self, ask: impl Into<Ask<'a>>) -> impl Future<Output = Ruling> + Send + 'a {
        let ask = ask.into();
        async move {
            match ask {
                Ask {
                    charges: Some(charges),
                    shadow: [],
                    options: options @ AskOptions { action: AskedAction::Spend, .. },
                } if charges.first_permit().is_none() => {
                    let decision = self.spend(AskedCharges { charges, options }).await;
                    Ruling::of(EnforcedDecision::Decided(decision))
                }
                // Boxed, so that the futures of plain questions stay small.
                ask => Box::pin(self.decide_all(ask)).await,
            }
        }
    }

    /// Makes a request cost `tokens` in the end, as [`settle_each`](Self::settle_each) does: what it owed, by the decisions of
    /// its [`Ruling`]. Failures in shadow mode are ignored.
    pub async fn settle_owed(
        &self,
        owed: &Owed,
        enforced: &EnforcedDecision,
        shadow: &[ShadowDecision],
        tokens: impl Fn(&BucketCharge) -> Amount + Send + Sync,
    ) -> Result<Settled, StoreError> {
        let settled = match (&owed.enforced, enforced) {
            (Enforced::Charged(chain), EnforcedDecision::Decided(decision)) => {
                self.settle_each(chain, decision, &tokens).await
            }
            _ => Ok(Settled::nothing()),
        };
        for (chain, watched) in owed.shadow.iter().zip(shadow) {
            let _ignored = self.settle_each(chain, &watched.decision, &tokens).await;
        }
        settled
    }

    async fn decide_all(&self, ask: Ask<'_>) -> Ruling {
        let Ask { charges, shadow, options } = ask;
        let (inner, action) = (&self.inner, options.action);
        let ends_at = inner.runtime.after(options.deadline(inner.deadline));
        let is_charged = charges.is_some();
        let mut ruling = Ruling::UNLIMITED;
        if let Some(charges) = charges {
            let (decision, permit) = self.decide_charges(AskedCharges { charges, options }).await;
            ruling.enforced = EnforcedDecision::Decided(decision);
            ruling.permit = permit.map(Box::new);
        } else if !matches!(action, AskedAction::Peek) {
            inner.count_unlimited(&options);
        }
        if ruling.allowed() && !shadow.is_empty() {
            let within = Some(ends_at - inner.runtime.now());
            let watched = shadow.iter().map(async |chain| {
                let action = match action {
                    AskedAction::Spend | AskedAction::PeekEnforced if chain.is_peek() => AskedAction::Peek,
                    AskedAction::PeekEnforced => AskedAction::Spend,
                    // The marker of the id is that of the enforced charges.
                    AskedAction::Reserve(_) if is_charged => AskedAction::Spend,
                    action => action,
                };
                let options = AskOptions { within, action, ..AskOptions::of(chain) };
                let (decision, _) =
                    self.decide_charges(AskedCharges { charges: chain.charges(), options }).await;
                ShadowDecision::of(chain, decision)
            });
            ruling.shadow = join_all(watched).await;
        }
        ruling
    }

    /// Decides about charges, and takes a permit of each concurrency among them.
    pub(super) async fn decide_charges(&self, asked: AskedCharges<'_>) -> (Decision, Option<Permit>) {
        match asked.options.action {
            AskedAction::Peek | AskedAction::PeekEnforced => return (self.peek_charges(asked).await, None),
            AskedAction::Reserve(id) => return (self.reserve_charges(asked, id).await, None),
            AskedAction::Spend if asked.charges.first_permit().is_none() => {
                return (self.spend(asked).await, None);
            }
            AskedAction::Spend => {}
        }
        let (decision, places) = self.inner.acquire(&asked).await;
        let permit = places.map(|places| {
            let release: Arc<dyn ReleaseWork> = Arc::<LimiterInner<S>>::clone(&self.inner);
            Permit::new(places, decision.clone(), release)
        });
        (decision, permit)
    }
}

impl<S> LimiterInner<S> {
    /// Reports a request to which no limit applies, if a rule says so.
    fn count_unlimited(&self, options: &AskOptions<'_>) {
        if let (Some(observer), Some(rule)) = (&self.observer, options.rule) {
            observer.unlimited(rule, options.tenant);
        }
    }
}
