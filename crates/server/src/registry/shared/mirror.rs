//! The shared registry as this instance has last read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::registry::{Entries, Kind};

/// A moment in the registry's life. The stamp tells two changes apart that got the same number, as happens when Redis
/// forgets the last one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Version {
    pub(super) number: u64,
    pub(super) stamp: String,
}

/// Everything that was read, whether or not it works.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirror {
    pub(super) version: Version,
    pub(super) entries: Arc<Entries>,
    /// What is no entry at all, by its name in Redis.
    pub(super) broken: BTreeMap<String, String>,
}

impl Mirror {
    /// Notes what one name stands for now, or that it stands for nothing any more.
    pub(super) fn note(&mut self, name: &str, document: Option<&[u8]>) {
        self.broken.remove(name);
        let entry = name.split_once('/').and_then(|(kind, name)| Some((Kind::parse(kind)?, name)));
        match (entry, document) {
            (Some((kind, name)), None) => drop(Arc::make_mut(&mut self.entries).remove(kind, name)),
            (Some((kind, own)), Some(document)) => match serde_json::from_slice::<Value>(document) {
                Ok(document) => Arc::make_mut(&mut self.entries).put(kind, own, document),
                Err(why) => {
                    Arc::make_mut(&mut self.entries).remove(kind, own);
                    self.broken.insert(name.to_owned(), format!("{name} is no JSON: {why}"));
                }
            },
            (None, Some(_)) => {
                let why = format!("{name:?} is not the name of a plan, rule or tenant");
                self.broken.insert(name.to_owned(), why);
            }
            (None, None) => {}
        }
    }

    /// What is wrong with it as it stands, short of what the configuration will say; `but` for one name.
    pub(super) fn fault(&self, but: Option<&str>) -> Option<String> {
        let others = self.broken.iter().filter(|(name, _)| Some(name.as_str()) != but);
        let all: Vec<&str> = others.map(|(_, why)| why.as_str()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_entry_is_remembered_until_it_is_replaced_or_gone() {
        let mut mirror = Mirror::default();
        mirror.note("plans/gold", Some(br#"{"capacity":5}"#));
        mirror.note("plans/gold", Some(b"{"));
        mirror.note("shoes/x", Some(b"{}"));
        assert!(mirror.entries.is_empty());
        let fault = mirror.fault(None).unwrap();
        assert!(fault.contains("plans/gold is no JSON") && fault.contains("\"shoes/x\""), "{fault}");
        mirror.note("shoes/x", None);
        assert_eq!(mirror.fault(Some("plans/gold")), None);
        mirror.note("plans/gold", Some(b"{}"));
        assert_eq!(mirror.fault(None), None);
        assert!(mirror.entries.get(Kind::Plans, "gold").is_some());
    }
}
