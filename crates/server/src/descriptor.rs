//! Which descriptors of Envoy's a rule is for: a domain, and entries in order.

use std::fmt;
use std::str::FromStr;

/// The descriptors that a rule is for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DescriptorMatch {
    pub(crate) domain: String,
    pub(crate) entries: Vec<EntryPattern>,
}

/// One entry of a descriptor: `key`, `key=value` or `key=beginning*`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct EntryPattern {
    key: String,
    value: ValuePattern,
}

/// Which values fit. Ordered by how much is asked for.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum ValuePattern {
    Any,
    /// Those that begin so.
    Beginning(String),
    Exactly(String),
}

impl DescriptorMatch {
    /// Whether it is for these entries: as many, in this order, each fitting.
    pub(crate) fn matches<'e>(&self, entries: impl ExactSizeIterator<Item = (&'e str, &'e str)>) -> bool {
        entries.len() == self.entries.len()
            && self.entries.iter().zip(entries).all(|(pattern, (key, value))| pattern.fits(key, value))
    }

    /// Orders those for one domain by how much they ask for, the first entry before the second: an exact value over a
    /// beginning, a longer beginning over a shorter one, and both over any value.
    pub(crate) fn specificity(&self) -> Vec<(bool, usize)> {
        self.entries.iter().map(EntryPattern::specificity).collect()
    }
}

impl EntryPattern {
    fn fits(&self, key: &str, value: &str) -> bool {
        self.key == key
            && match &self.value {
                ValuePattern::Any => true,
                ValuePattern::Beginning(beginning) => value.starts_with(beginning.as_str()),
                ValuePattern::Exactly(wanted) => value == wanted,
            }
    }

    fn specificity(&self) -> (bool, usize) {
        match &self.value {
            ValuePattern::Any => (false, 0),
            ValuePattern::Beginning(beginning) => (false, beginning.len()),
            ValuePattern::Exactly(_) => (true, 0),
        }
    }
}

impl FromStr for EntryPattern {
    type Err = NoEntry;

    fn from_str(text: &str) -> Result<Self, NoEntry> {
        let (key, value) = match text.split_once('=') {
            None => (text, ValuePattern::Any),
            Some((key, value)) => match value.strip_suffix('*') {
                Some("") => (key, ValuePattern::Any),
                Some(beginning) => (key, ValuePattern::Beginning(beginning.to_owned())),
                None => (key, ValuePattern::Exactly(value.to_owned())),
            },
        };
        if key.is_empty() || key.contains('*') {
            return Err(NoEntry(text.to_owned()));
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

impl fmt::Display for EntryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            ValuePattern::Any => f.write_str(&self.key),
            ValuePattern::Beginning(beginning) => write!(f, "{}={beginning}*", self.key),
            ValuePattern::Exactly(value) => write!(f, "{}={value}", self.key),
        }
    }
}

/// A text that stands for no entry.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no entry of a descriptor")]
pub(crate) struct NoEntry(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(entries: &[&str]) -> DescriptorMatch {
        let entries = entries.iter().map(|entry| entry.parse().expect("an entry")).collect();
        DescriptorMatch { domain: "edge".to_owned(), entries }
    }

    #[test]
    fn entries_fit_by_key_and_value_in_order() {
        let pair = |entries: &'static [(&str, &str)]| entries.iter().copied();
        let login = matcher(&["path=/login*", "remote_address"]);
        assert!(login.matches(pair(&[("path", "/login/again"), ("remote_address", "::1")])));
        assert!(!login.matches(pair(&[("path", "/logout"), ("remote_address", "::1")])));
        assert!(!login.matches(pair(&[("remote_address", "::1"), ("path", "/login")])));
        assert!(!login.matches(pair(&[("path", "/login")])));
        assert!(matcher(&["a=b=c"]).matches(pair(&[("a", "b=c")])));
        assert!(!matcher(&["a="]).matches(pair(&[("a", "b")])));
    }

    #[test]
    fn the_more_a_descriptor_is_told_the_more_specific_it_is() {
        let ordered = [&["a", "b"], &["a", "b=1"], &["a=x*", "b=1"], &["a=xy*", "b"], &["a=xy", "b"]];
        assert!(ordered.iter().map(|entries| matcher(*entries)).is_sorted_by_key(|one| one.specificity()));
    }

    #[test]
    fn an_entry_is_shown_as_it_was_written() {
        for text in ["remote_address", "path=/login", "path=/api/*", "empty="] {
            assert_eq!(text.parse::<EntryPattern>().map(|entry| entry.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("path=*".parse::<EntryPattern>().map(|entry| entry.to_string()), Ok("path".to_owned()));
        for text in ["", "=x", "pa*h=x"] {
            assert!(text.parse::<EntryPattern>().is_err(), "{text}");
        }
    }
}
