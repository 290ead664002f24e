//! Why a request is refused, at any level of its buckets.

use smol_str::SmolStr;
use spile_core::{ChargeError, KeyError, LimitName};

/// Why a request is refused even if its buckets would allow it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyRefusal {
    /// The request has no key for the rule.
    #[error("the request has none of the keys of rule `{rule}`: {words}")]
    NoKey {
        /// The rule.
        rule: SmolStr,
        /// Where it looks.
        words: String,
    },
    /// The key of the request is not a valid identity.
    #[error("rule `{rule}` limits by {place}: {why}")]
    NoIdentity {
        /// The rule.
        rule: SmolStr,
        /// Where it was found.
        place: String,
        /// The fault.
        why: KeyError,
    },
    /// The rule is only for tenants, and the request has no tenant.
    #[error("rule `{rule}` is only for tenants; send a tenant's credential")]
    NoTenant {
        /// The rule.
        rule: SmolStr,
    },
    /// The request costs more than the capacity of a limit, so that waiting does not help.
    #[error(transparent)]
    NeverPasses(ChargeError),
    /// The rule denies every request.
    #[error("rule `{rule}` denies every request")]
    Banned {
        /// The rule.
        rule: SmolStr,
    },
    /// A limit is a concurrency, and no permit could be released when the request has ended.
    #[error("limit {limit} is a concurrency: it needs a permit, which could not be released here")]
    NeedsPermit {
        /// The limit.
        limit: LimitName,
    },
    /// The rules that apply have more limits than one decision can charge.
    #[error(transparent)]
    TooManyLimits(ChargeError),
}
