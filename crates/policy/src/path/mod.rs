//! Paths: one reading for each, and the patterns that match them.

mod clean;
mod pattern;

pub use clean::{CleanPath, Unclear};
pub use pattern::{PathPattern, PatternError};
