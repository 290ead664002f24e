//! Whoever wants to know of every decision: metrics, a dashboard, a log.

use spile_core::Decision;

/// Hears of every decision, on the caller's own time: it must be quick and must not block.
pub trait Observer: Send + Sync {
    /// A decision was made, for this rule if one asked.
    fn decided(&self, rule: Option<&str>, decision: &Decision);
}
