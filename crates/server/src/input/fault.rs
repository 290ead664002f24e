//! A fault in an input, and its place.

use std::fmt;

use spile_policy::AskError;

/// A field, and the bound that it breaks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Fault {
    field: String,
    why: String,
}

impl Fault {
    pub(crate) fn new(field: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { field: field.into(), why: why.to_string() }
    }

    /// Returns the fault as that of an item of a list: `cost` becomes `[3].cost`.
    pub(crate) fn at_index(self, index: usize) -> Self {
        Self { field: format!("[{index}].{}", self.field), ..self }
    }

    pub(crate) fn field(&self) -> &str {
        &self.field
    }
}

impl From<AskError> for Fault {
    fn from(wrong: AskError) -> Self {
        Self::new(wrong.field(), wrong)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}
