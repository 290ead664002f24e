//! Where a value was written.

use std::ops::Range;

/// Where a value was written, for whoever has to correct it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// In the file, from one byte to another.
    File(Range<usize>),
    /// In this environment variable.
    Environment(String),
    /// In this entry of the registry.
    Registry {
        /// Its kind and name: `plans/gold`.
        entry: String,
        /// The member of its document: `limits[0].refill`. Empty where the whole entry is meant.
        field: String,
    },
}

impl Place {
    /// The same place, seen from a member of what is written here. Files and variables know no better.
    pub(crate) fn member(&self, name: &str) -> Self {
        self.within(|field| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") })
    }

    /// The same place, seen from an item of the list that is written here.
    pub(super) fn item(&self, index: usize) -> Self {
        self.within(|field| format!("{field}[{index}]"))
    }

    fn within(&self, path: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::Registry { entry, field } => Self::Registry { entry: entry.clone(), field: path(field) },
            other => other.clone(),
        }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Spot<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

impl<T> Spot<T> {
    pub(crate) const fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }
}
