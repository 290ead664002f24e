//! Failures as an observer of the limiter counts them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use spile_core::FailureReason;
use spile_limiter::{Observed, Observer};
use spile_testkit::ledger::Ledger;

/// Counts what metrics would count: every decision without the store, by its reason.
#[derive(Clone, Default)]
pub(crate) struct Counted(Arc<Mutex<BTreeMap<&'static str, usize>>>);

impl Counted {
    /// What is wrong, where what was counted is not what callers saw.
    pub(crate) fn complaint(&self, ledger: &Ledger) -> Option<String> {
        let (counted, seen) = (self.0.lock().clone(), ledger.failures());
        (counted != seen).then(|| format!("failures were counted as {counted:?}, but callers saw {seen:?}"))
    }
}

impl Observer for Counted {
    fn decided(&self, observed: &Observed<'_>) {
        if let Some(reason) = observed.decision().failure().map(FailureReason::as_str) {
            *self.0.lock().entry(reason).or_default() += 1;
        }
    }
}
