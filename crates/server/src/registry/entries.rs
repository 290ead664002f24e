//! The entries of the registry, by kind and name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::config::Spec;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    Plans,
    Rules,
    Tenants,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Plans, Self::Rules, Self::Tenants];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Plans => "plans",
            Self::Rules => "rules",
            Self::Tenants => "tenants",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// The member that holds the name of an entry.
    pub(crate) const fn name_member(self) -> &'static str {
        match self {
            Self::Plans => "name",
            Self::Rules | Self::Tenants => "id",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The kind and name of an entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct EntryId {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

impl EntryId {
    /// Parses the name under which an entry is stored.
    pub(crate) fn parse(entry: &str) -> Option<Self> {
        let (kind, name) = entry.split_once('/')?;
        Some(Self { kind: Kind::parse(kind)?, name: name.to_owned() })
    }
}

impl fmt::Display for EntryId {
    /// Writes the name under which the entry is stored.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// Entries as they were put. The configuration checks whether they are valid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries([BTreeMap<String, Arc<Spec>>; 3]);

impl Entries {
    /// All entries, plans before rules and rules before tenants.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Kind, &str, &Arc<Spec>)> {
        Kind::ALL
            .into_iter()
            .zip(&self.0)
            .flat_map(|(kind, entries)| entries.iter().map(move |(name, spec)| (kind, name.as_str(), spec)))
    }

    pub(crate) const fn of_kind(&self, kind: Kind) -> &BTreeMap<String, Arc<Spec>> {
        &self.0[kind as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(BTreeMap::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count`, in the order of [`Self::iter`].
    pub(crate) fn first(&self, count: usize) -> Self {
        let mut first = Self::default();
        for (kind, name, spec) in self.iter().take(count) {
            first.0[kind as usize].insert(name.to_owned(), Arc::clone(spec));
        }
        first
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Arc<Spec>> {
        self.of_kind(kind).get(name)
    }

    /// Replaces the entry of this name, or removes it if `spec` is `None`.
    pub(crate) fn set(&mut self, which: &EntryId, spec: Option<Arc<Spec>>) {
        let entries = &mut self.0[which.kind as usize];
        match spec {
            Some(spec) => drop(entries.insert(which.name.clone(), spec)),
            None => drop(entries.remove(&which.name)),
        }
    }
}
