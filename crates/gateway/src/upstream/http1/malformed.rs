//! An answer that cannot be read in one way only.

/// Why an upstream's answer is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(super) &'static str);
