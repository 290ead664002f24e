//! Paths: one reading for each, and the patterns that match them.

mod clean;
mod pattern;

pub(crate) use clean::CleanPath;
pub use pattern::{PathPattern, PatternError};
