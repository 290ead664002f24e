//! Paths: their normal form, and the patterns that match them.

mod clean;
mod pattern;

pub use clean::{AmbiguousPath, CleanPath};
pub use pattern::{PathPattern, PatternError};
