//! Redis keys: `spile:{user%3A123}:gold`, with a field for each limit of the plan.
//!
//! The encoding is injective, so that no two keys share a bucket. The caller's key is the hash tag, so that all its
//! limits are in one cluster slot. It cannot close the braces, leave the prefix or grow without bound.

use percent_encoding::percent_encode_byte;
use sha2::{Digest, Sha256};
use spile_core::{Key, LimitName};

/// The longest encoded key. Longer ones are hashed.
const MAX_TAG_BYTES: usize = 200;

/// The start of the tag of a hashed key. A key that is not hashed has `%3A` for every `:`, so it never begins like
/// this.
const HASHED: &[u8] = b"sha256:";

/// The bytes of the hash that are kept: 128 bits.
const HASH_BYTES: usize = 16;

/// Precedes the name of a limit in the key of its permits.
const PERMITS: &[u8] = b"permits:";

/// The prefix of all keys of one store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct KeyPrefix(Box<str>);

impl KeyPrefix {
    /// The longest prefix, in bytes.
    pub(crate) const MAX_BYTES: usize = 64;

    /// The prefix. `None` if it could open a hash tag or be read as a pattern.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
        let fits = (1..=Self::MAX_BYTES).contains(&text.len()) && text.bytes().all(allowed);
        fits.then(|| Self(text.into()))
    }

    /// Where the bucket of `key` under `limit` is.
    pub(crate) fn bucket_key(&self, key: Key<'_>, limit: &LimitName) -> BucketKey {
        BucketKey::new(self.tagged(key, limit.as_bytes().len()), limit.as_bytes())
    }

    /// Where the permits of `key` under `limit` are: `spile:{user%3A123}:permits:gold/jobs`.
    ///
    /// No bucket has that key: a limit's name has no colon, except after `shadow`. A plan can therefore become another kind of limit while
    /// permits of it are held: neither takes what the other has written for its own, and deletes it.
    pub(crate) fn permits_key(&self, key: Key<'_>, limit: &LimitName) -> BucketKey {
        let mut bytes = self.tagged(key, PERMITS.len() + limit.as_str().len());
        bytes.extend_from_slice(PERMITS);
        bytes.extend_from_slice(limit.as_bytes());
        BucketKey::alone(bytes)
    }

    /// The start of all keys of a caller: `spile:{user%3A123}:`. There is room for `more` bytes.
    fn tagged(&self, key: Key<'_>, more: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() + key.as_str().len() + more + 4);
        bytes.extend_from_slice(self.0.as_bytes());
        bytes.extend_from_slice(b":{");
        push_tag(&mut bytes, key.as_str().as_bytes());
        bytes.extend_from_slice(b"}:");
        bytes
    }

    /// The prefix of the keys of one session: `spile:{:registry}`.
    ///
    /// No tag of a bucket begins with a colon: in a key a colon is escaped, and a hashed key begins with `sha256`.
    pub(crate) fn key_space(&self, name: &str) -> String {
        format!("{}:{{:{name}}}", self.0)
    }
}

/// Where a bucket is: the key of a hash, and its name in the hash if the limits of a plan share it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BucketKey {
    /// The key of the hash, and behind a slash the name.
    bytes: Vec<u8>,
    hash_bytes: usize,
}

impl BucketKey {
    /// A bucket that shares its hash with no other.
    pub(crate) const fn alone(hash: Vec<u8>) -> Self {
        Self { hash_bytes: hash.len(), bytes: hash }
    }

    /// The bucket of this name beside this one: `spile:{user%3A123}:` and the name, whose part behind a slash is the name in the hash.
    pub(crate) fn beside(&self, name: &[u8]) -> Self {
        Self::new(self.bytes[..self.bytes.len() - self.suffix().len()].to_vec(), name)
    }

    /// The bucket of this name among the keys of a caller, which begin with `bytes`.
    fn new(mut bytes: Vec<u8>, name: &[u8]) -> Self {
        let hash_bytes = bytes.len() + name.iter().position(|&byte| byte == b'/').unwrap_or(name.len());
        bytes.extend_from_slice(name);
        Self { bytes, hash_bytes }
    }

    /// The part behind the hash tag. No tag has a closing brace.
    pub(crate) fn suffix(&self) -> &[u8] {
        let tag_end = self.bytes.iter().position(|&byte| byte == b'}');
        tag_end.and_then(|end| self.bytes.get(end + 2..)).unwrap_or_default()
    }

    /// The key of the hash.
    pub(crate) fn hash(&self) -> &[u8] {
        &self.bytes[..self.hash_bytes]
    }

    /// The name of the bucket in its hash. Empty if it shares the hash with no other.
    pub(crate) fn name(&self) -> &[u8] {
        self.bytes.get(self.hash_bytes + 1..).unwrap_or_default()
    }
}

fn push_tag(out: &mut Vec<u8>, key: &[u8]) {
    let start = out.len();
    for &byte in key {
        if must_escape(byte) {
            out.extend_from_slice(percent_encode_byte(byte).as_bytes());
        } else {
            out.push(byte);
        }
    }
    if out.len() - start > MAX_TAG_BYTES {
        out.truncate(start);
        push_hash(out, key);
    }
}

fn push_hash(out: &mut Vec<u8>, key: &[u8]) {
    let mut digits = [0; 2 * HASH_BYTES];
    let written = hex::encode_to_slice(&Sha256::digest(key)[..HASH_BYTES], &mut digits);
    debug_assert_eq!(written, Ok(()), "each byte is two digits");
    digits.make_ascii_uppercase();
    out.extend_from_slice(HASHED);
    out.extend_from_slice(&digits);
}

/// Braces would end the hash tag, a colon separates our own parts, a percent sign is the escape itself, and control
/// bytes garble terminals.
const fn must_escape(byte: u8) -> bool {
    matches!(byte, b'{' | b'}' | b'%' | b':' | 0x7f) || byte < 0x20
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(key: &str, limit: &str) -> String {
        let prefix = KeyPrefix::new("spile").unwrap();
        let key = prefix.bucket_key(Key::new(key).unwrap(), &LimitName::new(limit).unwrap());
        String::from_utf8(key.bytes).unwrap()
    }

    /// Keys that try to collide: many special characters.
    fn hostile_key() -> impl Strategy<Value = String> {
        prop_oneof![
            "[{}%:a3A]{1,12}",
            "\\PC{1,300}",
            "(sha256:)?[0-9A-F]{32}",
            "[%]{60,80}",
            "[a-c]{199,202}",
        ]
    }

    #[test]
    fn a_key_reads_as_in_the_design() {
        assert_eq!(bucket("user:123", "gold/burst"), "spile:{user%3A123}:gold/burst");
    }

    #[test]
    fn the_limits_of_a_plan_share_a_hash() {
        let prefix = KeyPrefix::new("spile").unwrap();
        let of = |limit| prefix.bucket_key(Key::new("user:123").unwrap(), &LimitName::new(limit).unwrap());
        let (burst, alone) = (of("gold/burst"), of("gold"));
        assert_eq!((burst.hash(), burst.name()), (&b"spile:{user%3A123}:gold"[..], &b"burst"[..]));
        assert_eq!((alone.hash(), alone.name()), (burst.hash(), &b""[..]));
    }

    #[test]
    fn permits_have_a_key_that_no_bucket_has() {
        let prefix = KeyPrefix::new("spile").unwrap();
        let (key, limit) = (Key::new("user:123").unwrap(), LimitName::new("gold/jobs").unwrap());
        let permits = prefix.permits_key(key, &limit);
        assert_eq!(permits.hash(), b"spile:{user%3A123}:permits:gold/jobs");
        assert!(permits.name().is_empty());
        LimitName::new("permits:gold/jobs").expect_err("a name without a colon");
    }

    #[test]
    fn a_space_has_a_tag_of_its_own() {
        assert_eq!(KeyPrefix::new("spile").unwrap().key_space("registry"), "spile:{:registry}");
    }

    #[test]
    fn a_long_key_becomes_a_hash_of_128_bits_that_no_short_key_can_equal() {
        let long = bucket(&"x".repeat(201), "free");
        assert_eq!(long.len(), "spile:{sha256:}:free".len() + 32);
        let tag = long.trim_start_matches("spile:{").trim_end_matches("}:free");
        assert_ne!(bucket(tag, "free"), long);
        assert_eq!(bucket(&"x".repeat(200), "free"), format!("spile:{{{}}}:free", "x".repeat(200)));
    }

    #[test]
    fn a_prefix_cannot_hold_what_a_pattern_or_a_tag_would_read() {
        for bad in ["", "a{b", "a}b", "a*", "a?", "a[b", "a b", &"x".repeat(65)] {
            assert_eq!(KeyPrefix::new(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn two_buckets_never_share_a_redis_key(
            a in hostile_key(), b in hostile_key(),
            x in "[a-c./]{1,3}", y in "[a-c./]{1,3}",
        ) {
            prop_assume!(LimitName::new(&x).is_ok() && LimitName::new(&y).is_ok());
            prop_assert_eq!(bucket(&a, &x) == bucket(&b, &y), a == b && x == y);
        }

        #[test]
        fn no_key_leaves_the_prefix_or_the_braces_or_grows_without_bound(key in hostile_key()) {
            let bucket = bucket(&key, "free");
            let tag = bucket.strip_prefix("spile:{").and_then(|rest| rest.strip_suffix("}:free"));
            let tag = tag.expect("prefix, tag and limit stand in their places");
            prop_assert!(!tag.is_empty() && tag.len() <= MAX_TAG_BYTES);
            let escapes = |c: char| c == '{' || c == '}' || c.is_ascii_control();
            prop_assert!(!tag.chars().any(escapes));
        }

        #[test]
        fn no_bucket_lies_in_a_space_beside_the_buckets(key in hostile_key(), limit in "[a-c./]{1,3}") {
            prop_assume!(LimitName::new(&limit).is_ok());
            let space = KeyPrefix::new("spile").unwrap().key_space("registry");
            for key in [key.as_str(), ":registry", "registry", ":registry}:entries", "%3Aregistry"] {
                prop_assert!(!bucket(key, &limit).starts_with(&space));
            }
        }

        #[test]
        fn a_key_decodes_to_itself(key in "[{}%:a-c]{1,60}") {
            let bucket = bucket(&key, "free");
            let tag = bucket.trim_start_matches("spile:{").trim_end_matches("}:free").to_owned();
            let mut decoded = tag;
            for (code, plain) in [("%7B", "{"), ("%7D", "}"), ("%3A", ":"), ("%25", "%")] {
                decoded = decoded.replace(code, plain);
            }
            prop_assert_eq!(decoded, key);
        }
    }
}
