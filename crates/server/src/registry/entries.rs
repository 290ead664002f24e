//! The entries, by what they are and what they are called.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// What an entry is.
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
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An entry by what it is called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Which {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

impl Which {
    /// Reads what entries are named by where they are kept.
    pub(crate) fn parse(entry: &str) -> Option<Self> {
        let (kind, name) = entry.split_once('/')?;
        Some(Self { kind: Kind::parse(kind)?, name: name.to_owned() })
    }
}

impl fmt::Display for Which {
    /// As it is named where entries are kept.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// Documents as they were put. Whether they work is for the configuration to say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries(BTreeMap<(Kind, String), Value>);

impl Entries {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Kind, &str, &Value)> {
        self.0.iter().map(|((kind, name), document)| (*kind, name.as_str(), document))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first so many, plans before rules and rules before tenants.
    pub(crate) fn first(&self, count: usize) -> Self {
        Self(self.0.iter().take(count).map(|(name, document)| (name.clone(), document.clone())).collect())
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.0.get(&(kind, name.to_owned()))
    }

    pub(crate) fn put(&mut self, kind: Kind, name: &str, document: Value) {
        self.0.insert((kind, name.to_owned()), document);
    }

    pub(crate) fn remove(&mut self, kind: Kind, name: &str) -> Option<Value> {
        self.0.remove(&(kind, name.to_owned()))
    }
}
