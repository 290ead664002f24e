//! What the code that [`rate_limit`](macro@crate::rate_limit) generates calls. In your own code, call
//! [`RateLimiter::allow`] instead.

use std::fmt::Display;
use std::sync::Arc;

use spile_core::Store;
use spile_limiter::{EnforcedDecision, LimiterError, Permit, PlanList, RateLimiter, Ruling};

use crate::exceeded::RateLimitExceeded;
use crate::global;

/// A limiter that can let a call in.
pub trait Admits: Sync {
    /// Lets the call in, or returns why not.
    fn admit<P>(
        &self,
        key: &str,
        plans: P,
        tokens: u64,
    ) -> impl Future<Output = Result<(), RateLimitExceeded>> + Send
    where
        P: PlanList + Send;
}

/// A limiter that can let a call in with a permit.
pub trait Acquires: Sync {
    /// Lets the call in with a permit, or returns why not.
    fn acquire(
        &self,
        key: &str,
        plans: &[String],
        tokens: u64,
    ) -> impl Future<Output = Result<Permit, RateLimitExceeded>> + Send;
}

/// The limiter given to [`set_global_limiter`](crate::set_global_limiter).
#[derive(Clone, Copy, Debug)]
pub struct Global;

impl<S: Store> Admits for RateLimiter<S> {
    async fn admit<P>(&self, key: &str, plans: P, tokens: u64) -> Result<(), RateLimitExceeded>
    where
        P: PlanList + Send,
    {
        RateLimitExceeded::unless_allowed(self.allow(key, plans, tokens).await)
    }
}

impl<L: Admits + ?Sized> Admits for &L {
    async fn admit<P>(&self, key: &str, plans: P, tokens: u64) -> Result<(), RateLimitExceeded>
    where
        P: PlanList + Send,
    {
        (**self).admit(key, plans, tokens).await
    }
}

impl<L: Admits + Send + ?Sized> Admits for Arc<L> {
    async fn admit<P>(&self, key: &str, plans: P, tokens: u64) -> Result<(), RateLimitExceeded>
    where
        P: PlanList + Send,
    {
        (**self).admit(key, plans, tokens).await
    }
}

impl Admits for Global {
    async fn admit<P>(&self, key: &str, plans: P, tokens: u64) -> Result<(), RateLimitExceeded>
    where
        P: PlanList + Send,
    {
        let limiter = global::limiter().ok_or(RateLimitExceeded::NoLimiter)?;
        let plans = plans.to_names();
        RateLimitExceeded::unless_allowed(limiter.allow(key, &plans, tokens).await)
    }
}

impl<S: Store + 'static> Acquires for RateLimiter<S> {
    async fn acquire(&self, key: &str, plans: &[String], tokens: u64) -> Result<Permit, RateLimitExceeded> {
        let charges = self.charges(key, plans, tokens)?;
        let none = || LimiterError::NoConcurrency(plans.join(", ")).into();
        if charges.first_permit().is_none() {
            return Err(none());
        }
        match self.decide(charges).await {
            Ruling { permit: Some(permit), .. } => Ok(*permit),
            Ruling { enforced: EnforcedDecision::Decided(decision), .. } => {
                Err(RateLimitExceeded::Denied(Box::new(decision)))
            }
            _ => Err(none()),
        }
    }
}

impl<L: Acquires + ?Sized> Acquires for &L {
    async fn acquire(&self, key: &str, plans: &[String], tokens: u64) -> Result<Permit, RateLimitExceeded> {
        (**self).acquire(key, plans, tokens).await
    }
}

impl<L: Acquires + Send + ?Sized> Acquires for Arc<L> {
    async fn acquire(&self, key: &str, plans: &[String], tokens: u64) -> Result<Permit, RateLimitExceeded> {
        (**self).acquire(key, plans, tokens).await
    }
}

impl Acquires for Global {
    async fn acquire(&self, key: &str, plans: &[String], tokens: u64) -> Result<Permit, RateLimitExceeded> {
        global::limiter().ok_or(RateLimitExceeded::NoLimiter)?.acquire(key, plans, tokens).await
    }
}

/// The key as text.
pub fn key<K: Display + ?Sized>(key: &K) -> String {
    key.to_string()
}

/// Lets the call in, or returns why not.
pub async fn admit<L, P>(limiter: &L, key: String, plans: P, tokens: u64) -> Result<(), RateLimitExceeded>
where
    L: Admits + ?Sized,
    P: PlanList + Send,
{
    limiter.admit(&key, plans, tokens).await
}

/// Lets the call in with a permit of the plan `concurrency`, together with the tokens of the other plans, or returns why not.
pub async fn acquire<L, P, C>(
    limiter: &L,
    key: String,
    plans: P,
    concurrency: C,
    tokens: u64,
) -> Result<Permit, RateLimitExceeded>
where
    L: Acquires + ?Sized,
    P: PlanList + Send,
    C: AsRef<str> + Send,
{
    let mut plans = plans.to_names();
    plans.push(concurrency.as_ref().to_owned());
    limiter.acquire(&key, &plans, tokens).await
}
