//! Names of plans and limits: short, printable, safe in a header, a metric label and a Redis key.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use crate::short_text::ShortText;

/// The longest name of a plan, or of a limit within its plan, in bytes.
const MAX_BYTES: usize = 64;

/// Precedes the name of a limit in shadow mode. No part of a configured name has a colon.
const SHADOW: &str = "shadow:";

/// The name of a plan: `free`, `gold`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PlanName(ShortText);

/// The full name of a limit: that of its plan, or `plan/limit` if the plan has several limits.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LimitName(ShortText);

impl PlanName {
    /// The name, if it consists of letters, digits, `.`, `_` and `-`.
    pub fn new(name: &str) -> Result<Self, NameError> {
        part(name).map(|name| Self(ShortText::new(name)))
    }
}

impl LimitName {
    /// The name, if each part around an optional `/` consists of letters, digits, `.`, `_` and `-`.
    pub fn new(name: &str) -> Result<Self, NameError> {
        match name.split_once('/') {
            Some((plan, limit)) => part(plan).and(part(limit))?,
            None => part(name)?,
        };
        Ok(Self(ShortText::new(name)))
    }

    /// A name that no configuration can contain, for buckets that a store keeps for itself.
    pub(crate) fn reserved(name: &str) -> Self {
        debug_assert!(Self::new(name).is_err(), "a limit could be called so");
        Self(ShortText::new(name))
    }

    /// The name of the limit's buckets in shadow mode: `shadow:gold/burst`. No configuration can contain it, so that a rule
    /// in shadow mode shares no bucket with an enforced one.
    #[must_use]
    pub fn shadowed(&self) -> Self {
        Self::reserved(&format!("{SHADOW}{}", self.unshadowed()))
    }

    /// The name of the limit's buckets outside of shadow mode.
    #[must_use]
    pub fn enforced(&self) -> Self {
        Self(ShortText::new(self.unshadowed()))
    }

    /// The name as the configuration spells it, without the prefix of shadow mode.
    pub fn unshadowed(&self) -> &str {
        self.as_str().strip_prefix(SHADOW).unwrap_or(self.as_str())
    }

    /// The name of `limit` within `plan`.
    pub fn within(plan: &PlanName, limit: &str) -> Result<Self, NameError> {
        let limit = part(limit)?;
        Ok(Self(ShortText::new(&format!("{plan}/{limit}"))))
    }
}

impl From<&PlanName> for LimitName {
    /// The only limit of a plan has the name of the plan.
    fn from(plan: &PlanName) -> Self {
        Self(plan.0.clone())
    }
}

macro_rules! reads_as_text {
    ($name:ident) => {
        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }

            /// The text as bytes. Cheaper than [`as_str`](Self::as_str), which checks them for UTF-8.
            #[inline]
            pub fn as_bytes(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }
    };
}

reads_as_text!(PlanName);
reads_as_text!(LimitName);

fn part(name: &str) -> Result<&str, NameError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=MAX_BYTES).contains(&name.len()) && name.bytes().all(allowed) {
        Ok(name)
    } else {
        Err(NameError(name.chars().take(MAX_BYTES).collect()))
    }
}

/// A name that is not safe in a header, a metric label or a Redis key.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("name {0:?} is not 1 to {MAX_BYTES} letters, digits, `.`, `_` or `-`")]
pub struct NameError(String);
