//! One limit for every key, in this process: the two-line way in.

use spile_core::{Charges, Cost, Decision, Key, KeyError, Limit, LimitError, LimitName, NamedLimit};
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
    /// Never: the name that it gives to the limit is valid.
    pub fn per_key<E: Into<LimitError>>(
        limit: impl TryInto<Limit, Error = E>,
    ) -> Result<KeyedLimiter, LimitError> {
        let limit = limit.try_into().map_err(Into::into)?;
        let name = LimitName::new("per_key").expect("letters and `_` are a name");
        let limiter = RateLimiter::builder().store(MemoryStore::new()).build();
        Ok(KeyedLimiter { limiter, limit: NamedLimit::new(name, limit) })
    }
}

impl KeyedLimiter {
    /// Spends one token of `key`, if there is one.
    ///
    /// # Panics
    /// Never: every limit holds at least one token.
    pub fn check(&self, key: &str) -> Result<Decision, KeyError> {
        let charges =
            Charges::one(Key::new(key)?, &self.limit, Cost::ONE).expect("every limit holds one token");
        Ok(self.limiter.allow_now(&charges))
    }

    /// Spends `tokens` of `key`, or none of them if there are fewer.
    pub fn check_n(&self, key: &str, tokens: u64) -> Result<Decision, LimiterError> {
        let charges = Charges::one(Key::new(key)?, &self.limit, Cost::new(tokens)?)?;
        Ok(self.limiter.allow_now(&charges))
    }
}
