//! What does not keep the store from answering, and should be looked into all the same.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// One warning for each subject, until it is cleared.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<BTreeMap<String, String>>);

impl Warnings {
    pub(crate) fn set(&self, subject: &str, why: String) {
        self.0.lock().insert(subject.to_owned(), why);
    }

    pub(crate) fn clear(&self, subject: &str) {
        self.0.lock().remove(subject);
    }

    /// All of them, on one line.
    pub(crate) fn told(&self) -> Option<String> {
        let warnings = self.0.lock();
        let lines: Vec<_> = warnings.iter().map(|(subject, why)| format!("{subject}: {why}")).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}
