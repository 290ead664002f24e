//! What a decision is counted as: its outcome and who gave it.

use spile_core::{Decision, Reason};

/// What became of a request, as it is labelled.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Verdict {
    Allowed,
    Denied,
    /// Would have been denied, but the rule only watches.
    Shadow,
}

impl Verdict {
    pub(crate) const fn of(decision: &Decision) -> Self {
        match (decision.reason(), decision.allowed()) {
            (Reason::Shadow, _) => Self::Shadow,
            (_, true) => Self::Allowed,
            (_, false) => Self::Denied,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Shadow => "shadow",
        }
    }
}
