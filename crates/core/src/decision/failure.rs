//! Failure policies, which decide when the store does not answer, and the reasons that metrics count.

use std::fmt;
use std::str::FromStr;

/// The decision about a request when the store fails.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Let the request pass, marked as degraded.
    #[default]
    Allow,
    /// Refuse the request until the store is back.
    Deny,
    /// Decide on this machine alone, with each limit divided by the number of replicas.
    Local,
}

impl FailurePolicy {
    /// The stricter of two: `deny` over `local` over `allow`. A decision under several rules uses the strictest of their policies.
    #[must_use]
    pub const fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Deny, _) | (_, Self::Deny) => Self::Deny,
            (Self::Local, _) | (_, Self::Local) => Self::Local,
            _ => Self::Allow,
        }
    }
}

impl FromStr for FailurePolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        match text {
            "allow" => Ok(Self::Allow),
            "deny" => Ok(Self::Deny),
            "local" => Ok(Self::Local),
            _ => Err(UnknownPolicy(text.to_owned())),
        }
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Local => "local",
        })
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

impl FailureReason {
    /// The label value in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RedisError => "rediserror",
            Self::Timeout => "timeout",
            Self::BadResponse => "badresponse",
            Self::BadTypes => "badtypes",
            Self::BreakerOpen => "breakeropen",
            Self::Overloaded => "overloaded",
        }
    }
}
