//! What a route changes about headers.

use spile_gateway::{HeaderChangeError, HeaderChanges};

use crate::config::file::{Faults, HeadersFile, Place, Spot};

/// Changes to a header, as they were written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct HeaderWords {
    pub(super) set: Vec<(String, String)>,
    pub(super) add: Vec<(String, String)>,
    pub(super) remove: Vec<String>,
}

impl HeaderWords {
    pub(super) fn check(file: Option<HeadersFile>, faults: &mut Faults) -> Self {
        let Some(file) = file else { return Self::default() };
        let remove = file.remove.map(|names| names.value).unwrap_or_default();
        for name in &remove {
            tell(HeaderChanges::default().remove(&name.value), &name.place, &name.place, faults);
        }
        Self {
            set: check_pairs(file.set, faults),
            add: check_pairs(file.add, faults),
            remove: remove.into_iter().map(|name| name.value).collect(),
        }
    }

    /// The changes as the gateway takes them.
    pub(super) fn changes(&self) -> Result<HeaderChanges, HeaderChangeError> {
        let mut changes = HeaderChanges::default();
        for name in &self.remove {
            changes = changes.remove(name)?;
        }
        for (name, value) in &self.set {
            changes = changes.set(name, value)?;
        }
        for (name, value) in &self.add {
            changes = changes.add(name, value)?;
        }
        Ok(changes)
    }
}

fn check_pairs(pairs: Vec<(Spot<String>, Spot<String>)>, faults: &mut Faults) -> Vec<(String, String)> {
    let pair = |(name, value): (Spot<String>, Spot<String>)| {
        tell(HeaderChanges::default().set(&name.value, &value.value), &name.place, &value.place, faults);
        (name.value, value.value)
    };
    pairs.into_iter().map(pair).collect()
}

fn tell(change: Result<HeaderChanges, HeaderChangeError>, name: &Place, value: &Place, faults: &mut Faults) {
    match change {
        Ok(_) => {}
        Err(why @ HeaderChangeError::Value(_)) => faults.add(value, why, "visible text on one line"),
        Err(why) => faults.add(name, why, "for instance `x-frame-options`"),
    }
}
