//! Failure policies, which decide when the store does not answer, and the reasons that metrics count.

use std::fmt;
use std::str::FromStr;

use crate::words::words;

/// The decision about a request when the store fails. The stricter policy is the greater one.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Let the request pass, marked as degraded.
    #[default]
    Allow,
    /// Decide on this machine alone, with each limit divided by the number of replicas.
    Local,
    /// Refuse the request until the store is back.
    Deny,
}

words! { FailurePolicy: Allow = "allow", Local = "local", Deny = "deny" }

impl FailurePolicy {
    /// The stricter of two: `deny` over `local` over `allow`. A decision under several rules uses the strictest of their policies.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        self.max(other)
    }
}

impl FromStr for FailurePolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let known = [Self::Allow, Self::Deny, Self::Local].into_iter().find(|policy| policy.as_str() == text);
        known.ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is not a failure policy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a failure policy: write `allow`, `deny` or `local`")]
pub struct UnknownPolicy(String);

/// Why the store gave no answer, as metrics count it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FailureReason {
    /// The store could not be reached or answered with an error.
    RedisError,
    /// No answer within the deadline.
    Timeout,
    /// An answer that cannot be read.
    BadResponse,
    /// Stored state of a type that cannot be read.
    BadTypes,
    /// The breaker is open, so the store was not asked.
    BreakerOpen,
    /// Too many requests are waiting, so the store was not asked.
    Overloaded,
}

words! {
    FailureReason:
    RedisError = "rediserror", Timeout = "timeout", BadResponse = "badresponse", BadTypes = "badtypes",
    BreakerOpen = "breakeropen", Overloaded = "overloaded"
}
