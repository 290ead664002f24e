//! Entries that conflict with the file: stored, and not in force until the conflict ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Entries, EntryId, Kind};

/// The most entries that are named in logs and answers. Removing one plan may affect a hundred thousand tenants.
pub(crate) const MOST_NAMED: usize = 20;

/// The kind of a document whose name belongs to no kind.
pub(crate) const OTHER: &str = "other";

/// The fault of a document whose name is that of no entry.
pub(crate) const NO_ENTRY: &str = "this is not the name of a plan, rule or tenant";

/// The entries by their stored names (`plans/gold`), each with its fault.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Quarantine(BTreeMap<String, String>);

impl Quarantine {
    /// Adds an entry. Only its first fault is kept.
    pub(crate) fn add(&mut self, entry: &str, why: impl Into<String>) {
        if !self.0.contains_key(entry) {
            self.0.insert(entry.to_owned(), why.into());
        }
    }

    pub(crate) fn remove(&mut self, entry: &str) {
        self.0.remove(entry);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The fault of this entry, if it is in quarantine.
    pub(crate) fn why(&self, which: &EntryId) -> Option<&str> {
        self.0.get(&which.to_string()).map(String::as_str)
    }

    /// Every entry and its fault.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(entry, why)| (entry.as_str(), why.as_str()))
    }

    /// Those that the other one does not have.
    pub(crate) fn beyond<'q>(&'q self, other: &'q Self) -> impl Iterator<Item = (&'q str, &'q str)> {
        self.iter().filter(|(entry, _)| !other.0.contains_key(*entry))
    }

    /// Those that the other one does not have, or has for another reason.
    pub(crate) fn news_to<'q>(&'q self, other: &'q Self) -> impl Iterator<Item = (&'q str, &'q str)> {
        self.iter().filter(|(entry, why)| other.0.get(*entry).is_none_or(|known| known != why))
    }

    /// How many there are of a kind; `None` for names that are of no kind.
    pub(crate) fn count(&self, kind: Option<Kind>) -> usize {
        self.0.keys().filter(|entry| kind_of(entry) == kind).count()
    }

    /// The names of the entries of a kind.
    pub(crate) fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let entries = self.0.keys().filter_map(|entry| entry.split_once('/'));
        entries.filter(move |(of, _)| *of == kind.as_str()).map(|(_, name)| name)
    }

    /// A summary that names no entry, for callers without a token.
    pub(crate) fn counted(&self) -> Option<String> {
        let counts = Kind::ALL.map(|kind| (kind.as_str(), self.count(Some(kind))));
        let counts = counts.into_iter().chain([(OTHER, self.count(None))]);
        let counts: Vec<String> =
            counts.filter(|(_, count)| *count > 0).map(|(kind, count)| format!("{kind} {count}")).collect();
        let entries = if self.len() == 1 { "entry is" } else { "entries are" };
        (!self.is_empty()).then(|| format!("{} {entries} in quarantine ({})", self.len(), counts.join(", ")))
    }

    /// A summary that names the first entries.
    pub(crate) fn named(&self) -> Option<String> {
        let named: Vec<String> =
            self.iter().take(MOST_NAMED).map(|(entry, why)| format!("{entry}: {why}")).collect();
        self.counted().map(|counted| format!("{counted}: {}", named.join("; ")))
    }
}

/// Splits the stored name of an entry into kind and name. Returns `other` and the whole text if it is not such a name.
pub(crate) fn split(entry: &str) -> (&'static str, &str) {
    let known = entry.split_once('/').and_then(|(kind, name)| Some((Kind::parse(kind)?.as_str(), name)));
    known.unwrap_or((OTHER, entry))
}

fn kind_of(entry: &str) -> Option<Kind> {
    Kind::parse(split(entry).0)
}

/// The entries that a registry adds to a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    /// The entries that are in force.
    pub(crate) entries: Arc<Entries>,
    /// The entries that are not, or whose last document is not.
    pub(crate) quarantine: Quarantine,
}
