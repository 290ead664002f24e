//! One limit for every key, in this process: the two-line way in.

use spile_core::{
    Amount, Charge, Cost, Decision, DecisionSource, Key, KeyError, Limit, LimitError, LimitName, NamedLimit,
};
use spile_memory::MemoryStore;

use super::RateLimiter;
use crate::error::LimiterError;

/// One limit for every key, with buckets in this process. Cheap to clone; clones share everything.
///
/// [`RateLimiter::per_key`] makes one. [`RateLimiter::builder`] is for several plans, a shared store or an observer.
#[derive(Clone, Debug)]
pub struct KeyedLimiter {
    limiter: RateLimiter<MemoryStore>,
    limit: NamedLimit,
}

impl RateLimiter<MemoryStore> {
    /// A limiter with one limit for every key, and buckets in this process. It needs no async runtime.
    ///
    /// ```
    /// # mod spile { pub use spile_core::*; pub use spile_limiter::*; }
    /// use spile::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::per_key(Limit::per_second(10).burst(20))?;
    /// assert!(limiter.check("user:123")?.allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Never: the limit's name is a constant that is valid.
    pub fn per_key<E: Into<LimitError>>(
        limit: impl TryInto<Limit, Error = E>,
    ) -> Result<KeyedLimiter, LimitError> {
        let limit: Limit = limit.try_into().map_err(Into::into)?;
        if limit.is_concurrency() {
            return Err(LimitError::NeedsPermit);
        }
        let name = LimitName::new("per_key").expect("letters and `_` are a name");
        let limiter = RateLimiter::builder().store(MemoryStore::new()).build();
        Ok(KeyedLimiter { limiter, limit: NamedLimit::new(name, limit) })
    }
}

impl KeyedLimiter {
    /// Spends one token of `key`, if there is one. [`Decision::into_owned`] makes a decision that outlives the limiter.
    #[expect(clippy::inline_always, reason = "a decision of which only a part is looked at is then not made")]
    #[inline(always)]
    pub fn check(&self, key: &str) -> Result<Decision<&NamedLimit>, KeyError> {
        Ok(self.spend(Key::new(key)?, Cost::ONE))
    }

    /// Spends `tokens` of `key`, or none of them if there are fewer.
    pub fn check_n(
        &self,
        key: &str,
        tokens: impl Into<Amount>,
    ) -> Result<Decision<&NamedLimit>, LimiterError> {
        let charge = Charge::new(Key::new(key)?, self.limit.clone(), Cost::new(tokens)?)?;
        Ok(self.spend(charge.key(), charge.cost()))
    }

    #[expect(clippy::inline_always, reason = "as `check`")]
    #[inline(always)]
    fn spend(&self, key: Key<'_>, cost: Cost) -> Decision<&NamedLimit> {
        let spent = self.limiter.store().spend_one(key, &self.limit, cost);
        Decision::from_spent(&self.limit, cost, spent, DecisionSource::Store)
    }
}
