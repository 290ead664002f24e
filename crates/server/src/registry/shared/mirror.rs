//! The shared registry as this instance has last read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Spec;
use crate::registry::quarantine::{NO_ENTRY, Quarantine};
use crate::registry::{Entries, EntryId};

/// A moment in the registry's life. The stamp distinguishes two changes that got the same number, as happens when Redis loses the last
/// one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Version {
    pub(super) number: u64,
    pub(super) stamp: String,
}

/// Everything that was read, valid or not.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirror {
    pub(super) version: Version,
    pub(super) entries: Arc<Entries>,
    /// Documents that cannot be read as an entry.
    pub(super) broken: Quarantine,
    /// The documents as they are in Redis, so that they can be put back there.
    raw: BTreeMap<String, Vec<u8>>,
}

impl Mirror {
    /// An empty mirror, to be filled as of this version.
    pub(super) fn at(version: Version) -> Self {
        Self { version, ..Self::default() }
    }

    /// Records the document under a name, or its removal.
    pub(super) fn note(&mut self, name: &str, document: Option<&[u8]>) {
        self.mend(name);
        match (EntryId::parse(name), document) {
            (Some(which), None) => self.forget(&which),
            (Some(which), Some(document)) => match Spec::read_text(&which, document) {
                Ok(spec) => Arc::make_mut(&mut self.entries).set(&which, Some(Arc::new(spec))),
                Err(why) => {
                    self.forget(&which);
                    self.note_broken(name, document, why);
                }
            },
            (None, Some(document)) => self.note_broken(name, document, NO_ENTRY.to_owned()),
            (None, None) => {}
        }
    }

    /// Records that the document under a name can be read again.
    pub(super) fn mend(&mut self, name: &str) {
        self.broken.remove(name);
        self.raw.remove(name);
    }

    /// The number of names.
    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.raw.len()
    }

    /// Every name with its document.
    pub(super) fn documents(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        let entries = self
            .entries
            .iter()
            .map(|(kind, name, spec)| (format!("{kind}/{name}"), spec.to_json().to_string().into_bytes()));
        entries.chain(self.raw.iter().map(|(name, document)| (name.clone(), document.clone())))
    }

    fn forget(&mut self, which: &EntryId) {
        Arc::make_mut(&mut self.entries).set(which, None);
    }

    fn note_broken(&mut self, name: &str, document: &[u8], why: String) {
        self.broken.add(name, why);
        self.raw.insert(name.to_owned(), document.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Kind;

    #[test]
    fn what_cannot_be_read_is_remembered_as_it_is_until_it_is_replaced_or_gone() {
        let mut mirror = Mirror::default();
        mirror.note("plans/gold", Some(br#"{"capacity":5}"#));
        mirror.note("plans/gold", Some(b"{"));
        mirror.note("shoes/x", Some(b"{}"));
        assert!(mirror.entries.is_empty());
        let broken: Vec<&str> = mirror.broken.iter().map(|(entry, _)| entry).collect();
        assert_eq!((broken, mirror.len()), (vec!["plans/gold", "shoes/x"], 2));
        assert!(mirror.documents().any(|(name, document)| name == "plans/gold" && document == b"{"));
        mirror.note("shoes/x", None);
        assert_eq!(mirror.broken.len(), 1);
        mirror.note("plans/gold", Some(b"{}"));
        assert_eq!((mirror.broken.len(), mirror.len()), (0, 1));
        assert!(mirror.entries.get(Kind::Plans, "gold").is_some());
    }
}
