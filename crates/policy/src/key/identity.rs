//! The key that a caller names itself.

use spile_core::{Key, KeyError};

use super::ResolvedKey;
use crate::policy::TENANT_KEY;

/// The prefixes that say what kind of identity follows. They do not count towards its length.
const KINDS: [&str; 3] = [TENANT_KEY, "principal:", "static:"];

/// The key of an identity that a caller names, if [`Key::new`] accepts it. A tenant with the longest possible id has
/// the same key here as at a listener that finds the tenant by its credential.
pub fn identity(text: &str) -> Result<ResolvedKey, KeyError> {
    let own = KINDS.iter().find_map(|kind| text.strip_prefix(kind)).filter(|own| !own.is_empty());
    Key::new(own.unwrap_or(text)).map(|_| ResolvedKey::of(&[text]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_tenant_can_be_asked_for_by_the_key_that_its_requests_pay_with() {
        for kind in KINDS {
            let longest = "x".repeat(Key::MAX_BYTES);
            let found = ResolvedKey::of(&[kind, &longest]);
            assert_eq!(identity(&format!("{kind}{longest}")), Ok(found));
            let why = identity(&format!("{kind}{longest}x"));
            assert_eq!(why, Err(KeyError::TooLong { bytes: Key::MAX_BYTES + 1 }));
            assert_eq!(identity(kind).map(|key| key.as_str().to_owned()).as_deref(), Ok(kind));
        }
    }

    #[test]
    fn identities_that_look_alike_are_told_apart() {
        let alike = [
            "ann",
            "ann ",
            " ann",
            "ann\u{A0}",
            "ann\u{200B}",
            "ann\u{200C}",
            "ann\u{200D}",
            "\u{FEFF}ann",
            "Ann",
        ];
        let keys: Vec<_> = alike.iter().map(|text| identity(text).expect("an identity")).collect();
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(key.as_str(), alike[at]);
            assert!(!keys[..at].contains(key), "{:?}", alike[at]);
        }
    }
}
