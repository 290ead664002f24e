//! Matches descriptors of Envoy: a domain and entries.

use std::fmt;
use std::str::FromStr;

/// The wildcard: any domain, or any text in a value.
pub(crate) const ANY: &str = "*";

/// The descriptors that a rule matches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DescriptorMatch {
    /// The domain, or `*` for any.
    pub domain: String,
    /// Its entries.
    pub entries: Vec<EntryPattern>,
    /// Whether a descriptor may have other entries as well, in any order. Only those listed are part of the key then.
    pub subset: bool,
}

/// One entry of a descriptor: `key`, `key=value` or `key=val*e`, where `*` stands for any text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EntryPattern {
    key: String,
    /// The pieces of the value between the stars. `None` if any value matches.
    value: Option<Vec<String>>,
    /// The value in keys, in place of the one that was sent. `None` if that is in the key.
    key_value: Option<String>,
}

/// The key and value of an entry of a request: any bytes that a caller sends.
pub(crate) type RawEntry<'e> = (&'e [u8], &'e [u8]);

/// The specificity of a rule for descriptors.
pub(crate) type DescriptorSpecificity = (bool, usize, Vec<(bool, usize)>);

impl DescriptorMatch {
    /// The entries that the key is made of, or `None` if the descriptor does not match. It matches if it has as many
    /// entries, in this order, and each fits. For a subset, each pattern must fit one of its entries.
    pub(crate) fn matched<'e>(&'e self, entries: &[RawEntry<'e>]) -> Option<Vec<RawEntry<'e>>> {
        if self.subset {
            let found = |pattern: &'e EntryPattern| {
                entries.iter().find(|entry| pattern.fits(**entry)).map(|entry| pattern.keyed(*entry))
            };
            return self.entries.iter().map(found).collect();
        }
        let both = || self.entries.iter().zip(entries);
        let fits = entries.len() == self.entries.len() && both().all(|(pattern, entry)| pattern.fits(*entry));
        fits.then(|| both().map(|(pattern, entry)| pattern.keyed(*entry)).collect())
    }

    /// Orders the rules of a domain. All entries are more specific than a subset, and more entries than fewer. Then
    /// entries are compared from the first on: an exact value is more specific than one with stars, and a longer one
    /// than a shorter.
    pub(crate) fn specificity(&self) -> DescriptorSpecificity {
        let entries = self.entries.iter().map(EntryPattern::specificity).collect();
        (!self.subset, self.entries.len(), entries)
    }
}

impl EntryPattern {
    /// Makes all values that match the pattern share a bucket.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.key_value = Some(self.value.as_ref().map_or_else(|| ANY.to_owned(), |pieces| pieces.join(ANY)));
        self
    }

    /// Whether all values that match share a bucket.
    pub const fn is_shared(&self) -> bool {
        self.key_value.is_some()
    }

    /// The key of its entries.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// An entry as it is in the key of a bucket.
    fn keyed<'e>(&'e self, (key, value): RawEntry<'e>) -> RawEntry<'e> {
        (key, self.key_value.as_ref().map_or(value, String::as_bytes))
    }

    fn fits(&self, (key, value): RawEntry<'_>) -> bool {
        self.key.as_bytes() == key && self.value.as_deref().is_none_or(|pieces| fits_pieces(pieces, value))
    }

    fn specificity(&self) -> (bool, usize) {
        match self.value.as_deref() {
            None => (false, 0),
            Some([_]) => (true, 0),
            Some(pieces) => (false, pieces.iter().map(String::len).sum()),
        }
    }
}

/// Whether the value is these pieces with any text between them.
fn fits_pieces(pieces: &[String], value: &[u8]) -> bool {
    let [first, between @ .., last] = pieces else {
        return pieces.first().is_some_and(|exact| exact.as_bytes() == value);
    };
    let Some(mut rest) = value.strip_prefix(first.as_bytes()) else { return false };
    for piece in between.iter().filter(|piece| !piece.is_empty()) {
        let Some(at) = rest.windows(piece.len()).position(|window| window == piece.as_bytes()) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last.as_bytes())
}

impl FromStr for EntryPattern {
    type Err = DescriptorMatchError;

    fn from_str(text: &str) -> Result<Self, DescriptorMatchError> {
        let (key, value) = match text.split_once('=') {
            None | Some((_, ANY)) => (text.split('=').next().unwrap_or_default(), None),
            Some((key, value)) => (key, Some(value.split('*').map(str::to_owned).collect())),
        };
        if key.is_empty() || key.contains('*') {
            return Err(DescriptorMatchError(text.to_owned()));
        }
        Ok(Self { key: key.to_owned(), value, key_value: None })
    }
}

impl fmt::Display for EntryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        match &self.value {
            None => Ok(()),
            Some(pieces) => write!(f, "={}", pieces.join(ANY)),
        }
    }
}

/// A text that is not an entry pattern.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not an entry of a descriptor")]
pub struct DescriptorMatchError(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(entries: &[&str]) -> DescriptorMatch {
        let entries = entries.iter().map(|entry| entry.parse().expect("an entry")).collect();
        DescriptorMatch { domain: "edge".to_owned(), entries, subset: false }
    }

    fn matches(matcher: &DescriptorMatch, entries: &[(&str, &str)]) -> bool {
        let entries: Vec<_> = entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
        matcher.matched(&entries).is_some()
    }

    #[test]
    fn entries_fit_by_key_and_value_in_order() {
        let login = matcher(&["path=/login*", "remote_address"]);
        assert!(matches(&login, &[("path", "/login/again"), ("remote_address", "::1")]));
        assert!(!matches(&login, &[("path", "/logout"), ("remote_address", "::1")]));
        assert!(!matches(&login, &[("remote_address", "::1"), ("path", "/login")]));
        assert!(!matches(&login, &[("path", "/login")]));
        assert!(matches(&matcher(&["a=b=c"]), &[("a", "b=c")]));
        assert!(!matches(&matcher(&["a="]), &[("a", "b")]));
    }

    #[test]
    fn a_star_anywhere_in_a_value_stands_for_any_text() {
        let table = [
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "example.com", false),
            ("/api/*/items", "/api/v1/items", true),
            ("/api/*/items", "/api/items", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
            ("x*bb*b", "x-bb", false),
            ("**", "", true),
        ];
        for (pattern, value, fits) in table {
            let entry = matcher(&[&format!("k={pattern}")]);
            assert_eq!(matches(&entry, &[("k", value)]), fits, "{pattern} {value}");
        }
    }

    #[test]
    fn a_subset_fits_whatever_else_is_there_and_keys_by_its_own_entries() {
        let posts = DescriptorMatch { subset: true, ..matcher(&["user", "method=POST"]) };
        let entries: [RawEntry<'_>; 3] = [(b"method", b"POST"), (b"trace", b"7"), (b"user", b"ann")];
        assert_eq!(posts.matched(&entries), Some(vec![entries[2], entries[0]]));
        assert_eq!(posts.matched(&entries[1..]), None);
    }

    #[test]
    fn values_that_share_a_bucket_are_one_in_the_key() {
        let mut files = matcher(&["path=/files/*", "user"]);
        files.entries[0] = files.entries[0].clone().shared();
        let entries: [RawEntry<'_>; 2] = [(b"path", b"/files/a"), (b"user", b"ann")];
        assert_eq!(files.matched(&entries), Some(vec![(&b"path"[..], &b"/files/*"[..]), entries[1]]));
        let any = DescriptorMatch { entries: vec![files.entries[1].clone().shared()], subset: true, ..files };
        assert_eq!(any.matched(&entries), Some(vec![(&b"user"[..], &b"*"[..])]));
    }

    #[test]
    fn a_value_is_any_bytes() {
        let any = matcher(&["user"]);
        assert!(any.matched(&[(b"user", b"bob\xff")]).is_some());
        assert!(matcher(&["user=bob*"]).matched(&[(b"user", b"bob\xff")]).is_some());
    }

    #[test]
    fn the_more_a_descriptor_is_told_the_more_specific_it_is() {
        let ordered = [&["a", "b"], &["a", "b=1"], &["a=x*", "b=1"], &["a=xy*", "b"], &["a=xy", "b"]];
        let mut ordered: Vec<_> = ordered.iter().map(|entries| matcher(*entries)).collect();
        ordered.insert(0, DescriptorMatch { subset: true, ..matcher(&["a=xy", "b=1"]) });
        assert!(ordered.is_sorted_by_key(DescriptorMatch::specificity));
    }

    #[test]
    fn an_entry_is_shown_as_it_was_written() {
        for text in ["remote_address", "path=/login", "path=/api/*", "path=*/x*y", "empty="] {
            assert_eq!(text.parse::<EntryPattern>().map(|entry| entry.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("path=*".parse::<EntryPattern>().map(|entry| entry.to_string()), Ok("path".to_owned()));
        for text in ["", "=x", "=*", "pa*h=x"] {
            assert!(text.parse::<EntryPattern>().is_err(), "{text}");
        }
    }
}
