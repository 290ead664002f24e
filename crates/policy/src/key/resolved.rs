//! The key of a request. It is always valid, and never equal to a key of another kind.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayString;
use sha2::{Digest, Sha256};
use spile_core::Key;

use crate::policy::TENANT_KEY;

/// Up to this length a key needs no allocation. Every address is shorter. Keys are moved several times, so that a
/// larger inline buffer would cost more than allocating long keys.
const INLINE_BYTES: usize = 36;

const JOINED_KEY: &str = "joined:";
const ROUTE_KEY: &str = "route:";

/// The key whose buckets are charged, as text that starts with its kind: `ip:203.0.113.7`, `tenant:acme`.
///
/// Two keys are equal only if kind and value are equal. A text that is not a valid [`Key`], because it is too long or
/// has a control character, is replaced by its SHA-256 (`sha256:…`), so that it still has a separate bucket. The
/// `Debug` format hides the value.
#[derive(Clone, Eq, PartialEq)]
pub struct ResolvedKey(KeyText);

impl ResolvedKey {
    /// A key for resolvers of your own. `label` keeps it apart from other custom keys.
    pub fn custom(label: &str, value: &str) -> Self {
        // A colon in the label would let two labels meet: `a:b` with `c`, and `a` with `b:c`.
        let label = label.replace('%', "%25").replace(':', "%3A");
        Self::of(&["custom:", &label, ":", value])
    }

    /// The text, for the limiter. Not for logs.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The key for the limiter.
    ///
    /// # Panics
    /// Never: a resolved key is neither empty nor too long, and holds no control character.
    pub fn as_key(&self) -> Key<'_> {
        Key::new(self.as_str()).expect("a resolved key is a valid key")
    }

    /// `tenant:` and its id.
    pub fn tenant(id: &str) -> Self {
        Self::of(&[TENANT_KEY, id])
    }

    /// `ip:` and the address. IPv6 addresses are grouped by networks of `ipv6_prefix` bits, because a client usually
    /// has a whole network. IPv4 addresses mapped to IPv6 count as IPv4.
    pub fn address(address: IpAddr, ipv6_prefix: u8) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::of_ipv4(address),
            IpAddr::V6(address) => {
                let bits = u32::from(ipv6_prefix.min(128));
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                let network = Ipv6Addr::from_bits(address.to_bits() & mask);
                let mut text = KeyText::with_room_for(0);
                // Writing to memory cannot fail.
                let _written = write!(text, "ip:{network}/{bits}");
                Self(text)
            }
        }
    }

    /// `path:` and the clean path. A trailing slash makes no difference, as in patterns.
    pub fn path(path: &str) -> Self {
        let trimmed = path.strip_suffix('/').filter(|rest| !rest.is_empty());
        Self::of(&["path:", trimmed.unwrap_or(path)])
    }

    /// The value of a header, hashed, because it may be a credential, which must not be in the store in plain text.
    pub fn header(name: &str, value: &[u8]) -> Self {
        Self::hashed(&[b"header:", name.as_bytes(), b":", value])
    }

    /// Several keys as one: a bucket for each combination.
    pub fn joined(parts: &[Self]) -> Self {
        // Each part has its length before it, so that different parts never give the same text.
        let joined = parts.iter().fold(String::from(JOINED_KEY), |mut text, part| {
            let part = part.as_str();
            text.push_str(itoa::Buffer::new().format(part.len()));
            text.push(':');
            text.push_str(part);
            text
        });
        Self::of(&[&joined])
    }

    /// The key of a client under the limits of a route: a bucket for each client and route.
    pub fn on_route(client: Self, route: &str) -> Self {
        Self::joined(&[client, Self::of(&[ROUTE_KEY, route])])
    }

    /// The client and the route of a key that [`on_route`](Self::on_route) made.
    pub fn split_route(key: &str) -> Option<(&str, &str)> {
        let (client, rest) = first_part(key.strip_prefix(JOINED_KEY)?)?;
        let (route, rest) = first_part(rest)?;
        rest.is_empty().then_some((client, route.strip_prefix(ROUTE_KEY)?))
    }

    /// Concatenates pieces. The first one starts with the kind and a colon. The caller must make sure that different
    /// values of a kind give different texts.
    pub fn of(pieces: &[&str]) -> Self {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if bytes > Key::MAX_BYTES || pieces.iter().any(|piece| Key::control_in(piece).is_some()) {
            return Self::hashed(&pieces.iter().map(|piece| piece.as_bytes()).collect::<Vec<_>>());
        }
        let mut text = KeyText::with_room_for(bytes);
        for piece in pieces {
            text.push(piece);
        }
        Self(text)
    }

    /// `ip:` and the address. Written by hand because most requests have such an address, and `write!` takes longer
    /// than the decision.
    fn of_ipv4(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        let mut text = ArrayString::new();
        for (before, octet) in [("ip:", a), (".", b), (".", c), (".", d)] {
            text.push_str(before);
            text.push_str(itoa::Buffer::new().format(octet));
        }
        Self(KeyText::Short(text))
    }

    /// The hash of these pieces, as a key.
    fn hashed(pieces: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for piece in pieces {
            hash.update(piece);
        }
        let mut text = KeyText::with_room_for(0);
        text.push("sha256:");
        // On the stack: this runs for every request with an API key.
        let mut digits = [0; 64];
        let written = hex::encode_to_slice(hash.finalize(), &mut digits);
        debug_assert_eq!(written, Ok(()), "32 bytes are 64 digits");
        text.push(str::from_utf8(&digits).unwrap_or_default());
        Self(text)
    }
}

/// The first part of a joined key, which has its length before it, and what follows.
fn first_part(text: &str) -> Option<(&str, &str)> {
    let (bytes, rest) = text.split_once(':')?;
    rest.split_at_checked(bytes.parse().ok()?)
}

impl fmt::Debug for ResolvedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResolvedKey({} bytes)", self.as_str().len())
    }
}

/// Short if it fits, so that each text has one form.
#[derive(Clone, Eq, PartialEq)]
enum KeyText {
    Short(ArrayString<INLINE_BYTES>),
    Long(String),
}

impl KeyText {
    fn with_room_for(bytes: usize) -> Self {
        if bytes <= INLINE_BYTES {
            Self::Short(ArrayString::new())
        } else {
            Self::Long(String::with_capacity(bytes))
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Short(text) => text,
            Self::Long(text) => text,
        }
    }

    fn push(&mut self, piece: &str) {
        match self {
            Self::Long(text) => text.push_str(piece),
            Self::Short(text) => {
                if text.try_push_str(piece).is_err() {
                    *self = Self::Long([text.as_str(), piece].concat());
                }
            }
        }
    }
}

impl Write for KeyText {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.push(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_key_in_whatever_pieces_it_was_written() {
        for text in ["ip:2001:db8::/64", "ip:2001:db8:1111:2222:3333:4444:5555:6666/128"] {
            let (address, bits) = text["ip:".len()..].split_once('/').unwrap();
            let written = ResolvedKey::address(address.parse().unwrap(), bits.parse().unwrap());
            assert!(written == ResolvedKey::of(&[text]) && written == ResolvedKey::of(&["ip:", &text[3..]]));
            assert_ne!(written, ResolvedKey::of(&[&text[1..]]));
        }
    }

    #[test]
    fn a_key_of_any_length_is_a_valid_key() {
        for bytes in [1, 26, 27, 28, 96, 1_000, 1_024, 1_025, 100_000] {
            let key = ResolvedKey::custom("x", &"v".repeat(bytes));
            assert!(Key::new(key.as_str()).is_ok(), "{bytes} bytes");
        }
    }

    #[test]
    fn a_text_with_a_control_character_is_known_by_its_hash() {
        let (one, other) = (ResolvedKey::custom("x", "a\nb"), ResolvedKey::custom("x", "a\u{85}b"));
        assert!(Key::new(one.as_str()).is_ok() && Key::new(other.as_str()).is_ok() && one != other);
        assert!(one.as_str().starts_with("sha256:"));
    }

    #[test]
    fn long_keys_that_differ_anywhere_stay_apart() {
        let long = "v".repeat(5_000);
        assert_ne!(
            ResolvedKey::custom("x", &format!("{long}a")),
            ResolvedKey::custom("x", &format!("{long}b"))
        );
        assert_ne!(ResolvedKey::custom("x", &long), ResolvedKey::custom("y", &long));
    }

    #[test]
    fn a_colon_in_a_label_does_not_make_two_labels_meet() {
        assert_ne!(ResolvedKey::custom("a:b", "c"), ResolvedKey::custom("a", "b:c"));
        assert_ne!(ResolvedKey::custom("a%3Ab", "c"), ResolvedKey::custom("a:b", "c"));
    }

    #[test]
    fn the_client_and_the_route_of_a_key_can_be_read_again() {
        for (client, route) in [("ip:203.0.113.7", "/scores"), ("tenant:a:1:b", "route:x"), ("é", "")] {
            let key = ResolvedKey::on_route(ResolvedKey::of(&[client]), route);
            assert_eq!(ResolvedKey::split_route(key.as_str()), Some((client, route)));
        }
        for other in [
            "ip:203.0.113.7",
            "joined:",
            "joined:9:a",
            "joined:1:a7:route:/x",
            "joined:1:é7:route:",
            "joined:1:a1:b",
        ] {
            assert_eq!(ResolvedKey::split_route(other), None, "{other}");
        }
    }

    #[test]
    fn ipv6_counts_by_its_network_and_mapped_ipv4_as_ipv4() {
        let key = |address: &str, prefix| {
            ResolvedKey::address(address.parse().unwrap(), prefix).as_str().to_owned()
        };
        assert_eq!(key("2001:db8:1:2:3:4:5:6", 64), "ip:2001:db8:1:2::/64");
        assert_eq!(key("2001:db8:1:2:3:4:5:6", 56), "ip:2001:db8:1::/56");
        assert_eq!(key("2001:db8:1:2:3:4:5:6", 128), "ip:2001:db8:1:2:3:4:5:6/128");
        assert_eq!(key("2001:db8::1", 0), "ip:::/0");
        assert_eq!(key("2001:db8::1", 200), "ip:2001:db8::1/128");
        assert_eq!(key("203.0.113.7", 64), "ip:203.0.113.7");
        assert_eq!(key("::ffff:203.0.113.7", 64), "ip:203.0.113.7");
    }

    #[test]
    fn a_key_does_not_show_itself_in_logs() {
        assert_eq!(format!("{:?}", ResolvedKey::custom("x", "secret")), "ResolvedKey(15 bytes)");
    }
}
