//! Names of plans and limits: short, printable, safe in a header, a metric label and a Redis key.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use smol_str::SmolStr;

/// The longest name of a plan, or of a limit within its plan, in bytes.
const MAX_BYTES: usize = 64;

/// The name of a plan: `free`, `gold`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PlanName(SmolStr);

/// The full name of a limit: its plan's, or `plan/limit` where the plan has several.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LimitName(SmolStr);

impl PlanName {
    /// The name, if it is made of letters, digits, `.`, `_` and `-`.
    pub fn new(name: &str) -> Result<Self, NameError> {
        part(name).map(|name| Self(SmolStr::new(name)))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl LimitName {
    /// The name, if each part around an optional `/` is made of letters, digits, `.`, `_` and `-`.
    pub fn new(name: &str) -> Result<Self, NameError> {
        match name.split_once('/') {
            Some((plan, limit)) => part(plan).and(part(limit))?,
            None => part(name)?,
        };
        Ok(Self(SmolStr::new(name)))
    }

    /// The name of `limit` within `plan`.
    pub fn within(plan: &PlanName, limit: &str) -> Result<Self, NameError> {
        let limit = part(limit)?;
        Ok(Self(smol_str::format_smolstr!("{}/{limit}", plan.as_str())))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&PlanName> for LimitName {
    /// A plan's only limit is called like the plan.
    fn from(plan: &PlanName) -> Self {
        Self(plan.0.clone())
    }
}

macro_rules! reads_as_text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
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
                &self.0
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
        Err(NameError(SmolStr::new(name.chars().take(MAX_BYTES).collect::<String>())))
    }
}

/// A name that would not be safe everywhere a name is shown.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("name {0:?} is not 1 to {MAX_BYTES} letters, digits, `.`, `_` or `-`")]
pub struct NameError(SmolStr);
