//! Where a value was written.

use std::ops::Range;

/// Where a value was written, for whoever has to correct it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// In the file, from one byte to another.
    File(Range<usize>),
    /// In this environment variable.
    Environment(String),
    /// In this entry of the registry: `plans/gold`.
    Registry(String),
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
