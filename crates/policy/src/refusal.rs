//! Why a request is refused whatever is left in its buckets.

use smol_str::SmolStr;
use spile_core::{ChargeError, KeyError};

/// Why a request is refused, once it has paid what it owes.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No place in a rule's list of keys holds one.
    #[error("the request carries nothing that rule `{rule}` limits by: {words}")]
    NoKey {
        /// The rule.
        rule: SmolStr,
        /// Where it looks.
        words: String,
    },
    /// What the request carries in such a place is not an identity.
    #[error("rule `{rule}` limits by {place}: {why}")]
    NoIdentity {
        /// The rule.
        rule: SmolStr,
        /// Where it was found.
        place: String,
        /// What is wrong with it.
        why: KeyError,
    },
    /// The rule is for tenants alone, and the request is of none.
    #[error("rule `{rule}` is for tenants alone; send a tenant's credential")]
    NoTenant {
        /// The rule.
        rule: SmolStr,
    },
    /// The request costs more than a limit ever holds: waiting does not help.
    #[error(transparent)]
    NeverPasses(ChargeError),
    /// The rule lets nothing pass.
    #[error("rule `{rule}` lets nothing pass")]
    Banned {
        /// The rule.
        rule: SmolStr,
    },
    /// The rules that apply have more limits than one decision takes.
    #[error(transparent)]
    TooManyLimits(ChargeError),
}
