//! The list of keys of a rule: the first one that a request has is charged.

use http::{HeaderName, HeaderValue};
use spile_core::{Key, KeyError};

use super::ResolvedKey;
use crate::facts::Facts;

/// Where a rule looks for the key of a request. The first place that has one is used.
#[derive(Clone, Debug)]
pub struct KeyList {
    /// As written in the file, for `config show` and the admin API.
    words: Vec<String>,
    /// Each is one place, or several whose keys are joined into one.
    choices: Vec<Vec<KeyPart>>,
}

/// A part of a request that can be a key.
#[derive(Clone, Debug)]
enum KeyPart {
    Tenant,
    Principal,
    Ip,
    Path,
    Route,
    Header(HeaderName),
    Literal(ResolvedKey),
}

impl KeyList {
    /// Parses words: `tenant`, `principal`, `ip`, `path`, `route`, `header:NAME`, `literal:NAME`, or several of them
    /// joined by `+` into one key.
    pub fn parse<W: AsRef<str>>(words: &[W]) -> Result<Self, KeyListError> {
        let choices = words.iter().map(|word| choice(word.as_ref())).collect::<Result<Vec<_>, _>>()?;
        if choices.is_empty() {
            return Err(KeyListError::Unknown(String::new()));
        }
        Ok(Self { words: words.iter().map(|word| word.as_ref().to_owned()).collect(), choices })
    }

    /// The words.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Whether some requests may have no key. Only `ip`, `path` and `literal:NAME` are never missing.
    pub fn may_find_nothing(&self) -> bool {
        let always = |part: &KeyPart| matches!(part, KeyPart::Ip | KeyPart::Path | KeyPart::Literal(_));
        !self.choices.iter().any(|parts| parts.iter().all(always))
    }

    /// The key of the request, or `None` if it has none. A value that is not a valid identity is an error and never
    /// skipped, because otherwise the client could choose which key is charged.
    pub(crate) fn resolve(
        &self,
        facts: &Facts<'_>,
        ipv6_prefix: u8,
    ) -> Result<Option<ResolvedKey>, InvalidIdentity> {
        for choice in &self.choices {
            let found = match choice.as_slice() {
                [part] => part.resolve(facts, ipv6_prefix)?,
                parts => {
                    let parts = parts.iter().map(|part| part.resolve(facts, ipv6_prefix));
                    let parts: Option<Vec<_>> = parts.collect::<Result<_, _>>()?;
                    parts.map(|parts| ResolvedKey::joined(&parts))
                }
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The key of all requests, if the list is a single literal.
    pub(crate) fn shared(&self) -> Option<&ResolvedKey> {
        let [choice] = self.choices.as_slice() else { return None };
        if let [KeyPart::Literal(key)] = choice.as_slice() { Some(key) } else { None }
    }
}

impl Default for KeyList {
    /// The tenant, else the address. A header is not in the list, because clients could get a new bucket with every
    /// request by sending a new value.
    fn default() -> Self {
        let words = vec!["tenant".to_owned(), "ip".to_owned()];
        Self { words, choices: vec![vec![KeyPart::Tenant], vec![KeyPart::Ip]] }
    }
}

impl KeyPart {
    fn resolve(&self, facts: &Facts<'_>, ipv6_prefix: u8) -> Result<Option<ResolvedKey>, InvalidIdentity> {
        Ok(match self {
            Self::Tenant => {
                let tenant = facts.tenant.as_ref().filter(|tenant| !tenant.id.is_empty());
                tenant.map(|tenant| ResolvedKey::tenant(&tenant.id))
            }
            Self::Principal => {
                facts.principal.filter(|name| !name.is_empty()).map(principal_key).transpose()?
            }
            Self::Ip => facts.address.map(|address| ResolvedKey::address(address, ipv6_prefix)),
            Self::Path => Some(ResolvedKey::path(facts.path)),
            Self::Route => facts.route.map(|route| ResolvedKey::of(&["route:", route])),
            Self::Header(name) => {
                let value = facts.headers.get(name).filter(|value| !value.is_empty());
                value.map(|value| header_key(name, value)).transpose()?
            }
            Self::Literal(key) => Some(key.clone()),
        })
    }
}

fn principal_key(name: &str) -> Result<ResolvedKey, InvalidIdentity> {
    Key::new(name).map_err(|why| InvalidIdentity { place: "principal".to_owned(), why })?;
    Ok(ResolvedKey::of(&["principal:", name]))
}

/// The key of a header's value. The value may be any bytes of any length, because only its hash is kept. Control
/// characters are refused, as in every identity.
pub(crate) fn header_key(name: &HeaderName, value: &HeaderValue) -> Result<ResolvedKey, InvalidIdentity> {
    match std::str::from_utf8(value.as_bytes()).ok().and_then(Key::control_in) {
        None => Ok(ResolvedKey::header(name.as_str(), value.as_bytes())),
        Some(why) => Err(InvalidIdentity { place: format!("header:{name}"), why }),
    }
}

/// The key of a request is not a valid identity.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct InvalidIdentity {
    pub(crate) place: String,
    pub(crate) why: KeyError,
}

fn choice(words: &str) -> Result<Vec<KeyPart>, KeyListError> {
    if !words.contains('+') {
        return Ok(vec![part(words)?]);
    }
    words.split('+').map(|word| part(word.trim())).collect()
}

fn part(word: &str) -> Result<KeyPart, KeyListError> {
    let bad = || KeyListError::Unknown(word.to_owned());
    Ok(match (word, word.split_once(':')) {
        ("tenant", _) => KeyPart::Tenant,
        ("principal", _) => KeyPart::Principal,
        ("ip", _) => KeyPart::Ip,
        ("path", _) => KeyPart::Path,
        ("route", _) => KeyPart::Route,
        (_, Some(("header", name))) => KeyPart::Header(name.parse().map_err(|_| bad())?),
        (_, Some(("literal", name))) => {
            let why = |why| KeyListError::Literal { name: name.chars().take(64).collect(), why };
            KeyPart::Literal(ResolvedKey::of(&["static:", Key::new(name).map_err(why)?.as_str()]))
        }
        _ => return Err(bad()),
    })
}

/// A word that is not a key.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyListError {
    /// The word is unknown.
    #[error(
        "`{0}` is not a key: write tenant, principal, ip, path, route, header:NAME or literal:NAME, joined by + if need be"
    )]
    Unknown(String),
    /// The name after `literal:` is not an identity.
    #[error("`literal:{}`: {why}", .name.escape_debug())]
    Literal {
        /// How the name begins.
        name: String,
        /// The fault.
        why: KeyError,
    },
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;
    use crate::facts::CallerTenant;

    fn resolve(words: &[&str], facts: &Facts<'_>) -> Option<String> {
        let list = KeyList::parse(words).expect("a list");
        list.resolve(facts, 64).expect("identities").map(|key| key.as_str().to_owned())
    }

    #[test]
    fn the_first_place_that_holds_a_key_pays() {
        let mut headers = HeaderMap::new();
        headers.insert("x-who", "ann".parse().unwrap());
        let address = Some("2001:db8:1:2:3::4".parse().unwrap());
        let anonymous = Facts { address, ..Facts::new(&Method::GET, "/res/7", &headers) };
        let acme = Facts { tenant: Some(CallerTenant::new("acme", None)), ..anonymous.clone() };
        let key = |facts, words: &[&str]| resolve(words, facts);
        assert_eq!(key(&acme, &["tenant", "ip"]).as_deref(), Some("tenant:acme"));
        assert_eq!(key(&anonymous, &["tenant", "ip"]).as_deref(), Some("ip:2001:db8:1:2::/64"));
        assert_eq!(key(&anonymous, &["tenant", "principal"]), None);
        assert_eq!(key(&anonymous, &["path"]).as_deref(), Some("path:/res/7"));
        assert_eq!(key(&anonymous, &["literal:all"]).as_deref(), Some("static:all"));
        assert_eq!(key(&anonymous, &["route"]), None);
        for words in ["tenant+path", "tenant + path"] {
            assert_eq!(key(&acme, &[words]).as_deref(), Some("joined:11:tenant:acme11:path:/res/7"));
        }
        assert_eq!(key(&anonymous, &["tenant+path", "ip+path"]).as_deref().map(str::len), Some(44));
    }

    #[test]
    fn the_value_of_a_header_is_hashed_before_it_is_a_key() {
        let mut headers = HeaderMap::new();
        headers.insert("x-who", "k-secret".parse().unwrap());
        let key = resolve(&["header:x-who"], &Facts::new(&Method::GET, "/", &headers)).expect("a key");
        assert!(key.starts_with("sha256:") && !key.contains("k-secret"), "{key}");
        headers.insert("x-who", http::HeaderValue::from_bytes(b"\xff\x80").unwrap());
        let bytes = resolve(&["header:x-who"], &Facts::new(&Method::GET, "/", &headers));
        assert!(bytes.is_some_and(|bytes| bytes != key), "bytes that are no text are a key too");
    }

    #[test]
    fn a_place_that_holds_no_identity_is_named_and_never_passed_over() {
        let mut headers = HeaderMap::new();
        headers.insert("x-who", HeaderValue::from_bytes("a\u{85}b".as_bytes()).unwrap());
        let long = "x".repeat(Key::MAX_BYTES + 1);
        let address = Some("203.0.113.7".parse().unwrap());
        let facts = Facts { address, ..Facts::new(&Method::GET, "/", &headers) };
        let refused = |words: &[&str], name| {
            let list = KeyList::parse(words).expect("a list");
            list.resolve(&Facts { principal: Some(name), ..facts.clone() }, 64).expect_err("it is refused")
        };
        let control = KeyError::Control { at: 1, code: 0x85 };
        for words in [&["header:x-who", "ip"][..], &["header:x-who+ip", "ip"], &["ip+header:x-who"]] {
            let why = refused(words, "ann");
            assert_eq!(why, InvalidIdentity { place: "header:x-who".to_owned(), why: control }, "{words:?}");
        }
        let place = "principal".to_owned();
        assert_eq!(
            refused(&["principal", "ip"], "a\u{85}"),
            InvalidIdentity { place: place.clone(), why: control }
        );
        let why = KeyError::TooLong { bytes: Key::MAX_BYTES + 1 };
        assert_eq!(refused(&["principal", "ip"], &long), InvalidIdentity { place, why });
    }

    #[test]
    fn a_list_says_whether_some_requests_have_no_key_under_it() {
        for (words, may_miss) in [
            (&["tenant", "ip"][..], false),
            (&["header:x-who"], true),
            (&["tenant", "principal"], true),
            (&["tenant+ip"], true),
            (&["ip+path"], false),
        ] {
            assert_eq!(KeyList::parse(words).unwrap().may_find_nothing(), may_miss, "{words:?}");
        }
    }

    #[test]
    fn a_word_that_is_no_key_is_refused() {
        for word in ["", " ip", "cookie", "header:", "header:a b", "literal:", "ip+", "ip+cookie"] {
            assert!(KeyList::parse(&[word]).is_err(), "{word}");
        }
        assert!(KeyList::parse::<&str>(&[]).is_err());
        let why = KeyList::parse(&["literal:a\nb"]).expect_err("a control character").to_string();
        assert!(why.starts_with(r"`literal:a\nb`: character 1 of the key is U+000A;"), "{why}");
        assert!(KeyList::parse(&[&format!("literal:{}", "x".repeat(1_024))]).is_ok());
        assert!(KeyList::parse(&[&format!("literal:{}", "x".repeat(1_025))]).is_err());
    }
}
