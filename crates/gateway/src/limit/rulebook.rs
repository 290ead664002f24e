//! Which rules a request falls under.

use std::sync::Arc;

use http::request::Parts;
use smallvec::SmallVec;

use super::rule::Rule;

/// The rules that one request falls under. They are charged together or not at all.
pub type Rules = SmallVec<[Arc<Rule>; 2]>;

/// Knows which rules a request falls under, for services whose rules change while the gateway runs. Asked on every
/// request, so it must answer from memory.
pub trait Rulebook: Send + Sync {
    /// The rules for this request. `path` is the one to match: decoded, and with one reading. What each rule itself
    /// says about paths and methods is not asked again.
    fn rules(&self, request: &Parts, path: &str) -> Rules;
}

/// Rules in an order: the first that matches applies.
impl Rulebook for Vec<Arc<Rule>> {
    fn rules(&self, request: &Parts, path: &str) -> Rules {
        self.iter().find(|rule| rule.matches(request, path)).cloned().into_iter().collect()
    }
}
