//! Who pays, as a rule lists it: the first place that holds a key.

use http::HeaderName;

use super::ResolvedKey;
use crate::facts::Facts;

const LITERAL: &str = "literal:";
const HEADER: &str = "header:";

/// Where a rule looks for its key. The first place that holds one pays.
#[derive(Clone, Debug)]
pub struct KeyList {
    /// As written in the file, for `config show` and the admin API.
    words: Vec<String>,
    choices: Vec<Choice>,
}

/// One place, or several whose keys are joined into one.
#[derive(Clone, Debug)]
enum Choice {
    One(Part),
    Joined(Vec<Part>),
}

/// One thing about a request that can be a key.
#[derive(Clone, Debug)]
enum Part {
    Tenant,
    Principal,
    Ip,
    Path,
    Route,
    Header(HeaderName),
    Literal(ResolvedKey),
}

impl KeyList {
    /// The list that these words spell: `tenant`, `principal`, `ip`, `path`, `route`, `header:NAME`, `literal:NAME`,
    /// joined by `+` where one key is to be made of several.
    pub fn parse<W: AsRef<str>>(words: &[W]) -> Result<Self, KeyListError> {
        let choices = words.iter().map(|word| choice(word.as_ref())).collect::<Result<Vec<_>, _>>()?;
        if choices.is_empty() {
            return Err(KeyListError(String::new()));
        }
        Ok(Self { words: words.iter().map(|word| word.as_ref().to_owned()).collect(), choices })
    }

    /// The words.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Whether some requests have no key under it: all but `ip`, `path` and `literal:NAME` can be missing.
    pub fn may_find_nothing(&self) -> bool {
        let always = |part: &Part| matches!(part, Part::Ip | Part::Path | Part::Literal(_));
        !self.choices.iter().any(|choice| match choice {
            Choice::One(part) => always(part),
            Choice::Joined(parts) => parts.iter().all(always),
        })
    }

    /// The key of the request, or `None` if no place holds one.
    pub(crate) fn resolve(&self, facts: &Facts<'_>, ipv6_prefix: u8) -> Option<ResolvedKey> {
        self.choices.iter().find_map(|choice| match choice {
            Choice::One(part) => part.resolve(facts, ipv6_prefix),
            Choice::Joined(parts) => {
                let parts: Option<Vec<_>> =
                    parts.iter().map(|part| part.resolve(facts, ipv6_prefix)).collect();
                Some(ResolvedKey::joined(&parts?))
            }
        })
    }

    /// The one key that every request has, if nothing about the request matters.
    pub(crate) fn shared(&self) -> Option<&ResolvedKey> {
        match self.choices.as_slice() {
            [Choice::One(Part::Literal(key))] => Some(key),
            _ => None,
        }
    }
}

impl Default for KeyList {
    /// The tenant, else the address. A header is not in the list: clients could send a new value, and get a new bucket,
    /// with every request.
    fn default() -> Self {
        let words = vec!["tenant".to_owned(), "ip".to_owned()];
        Self { words, choices: vec![Choice::One(Part::Tenant), Choice::One(Part::Ip)] }
    }
}

impl Part {
    fn resolve(&self, facts: &Facts<'_>, ipv6_prefix: u8) -> Option<ResolvedKey> {
        match self {
            Self::Tenant => {
                let tenant = facts.tenant.as_ref().filter(|tenant| !tenant.id.is_empty())?;
                Some(ResolvedKey::tenant(&tenant.id))
            }
            Self::Principal => {
                let name = facts.principal.filter(|name| !name.is_empty())?;
                Some(ResolvedKey::of(&["principal:", name]))
            }
            Self::Ip => facts.address.map(|address| ResolvedKey::address(address, ipv6_prefix)),
            Self::Path => Some(ResolvedKey::path(facts.path)),
            Self::Route => facts.route.map(|route| ResolvedKey::of(&["route:", route])),
            Self::Header(name) => {
                let value = facts.headers.get(name).filter(|value| !value.is_empty())?;
                Some(ResolvedKey::header(name.as_str(), value.as_bytes()))
            }
            Self::Literal(key) => Some(key.clone()),
        }
    }
}

fn choice(words: &str) -> Result<Choice, KeyListError> {
    if !words.contains('+') {
        return part(words).map(Choice::One);
    }
    words.split('+').map(|word| part(word.trim())).collect::<Result<_, _>>().map(Choice::Joined)
}

fn part(word: &str) -> Result<Part, KeyListError> {
    let bad = || KeyListError(word.to_owned());
    Ok(match word {
        "tenant" => Part::Tenant,
        "principal" => Part::Principal,
        "ip" => Part::Ip,
        "path" => Part::Path,
        "route" => Part::Route,
        _ => match (word.strip_prefix(HEADER), word.strip_prefix(LITERAL)) {
            (Some(name), _) => Part::Header(name.parse().map_err(|_| bad())?),
            (_, Some(name)) if !name.is_empty() => Part::Literal(ResolvedKey::of(&["static:", name])),
            _ => return Err(bad()),
        },
    })
}

/// A word that is no key.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{0}` finds no key: write tenant, principal, ip, path, route, header:NAME or literal:NAME, joined by + if need be"
)]
pub struct KeyListError(String);

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;
    use crate::facts::CallerTenant;

    fn resolve(words: &[&str], facts: &Facts<'_>) -> Option<String> {
        let list = KeyList::parse(words).expect("a list");
        list.resolve(facts, 64).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn the_first_place_that_holds_a_key_pays() {
        let mut headers = HeaderMap::new();
        headers.insert("x-who", "ann".parse().unwrap());
        let anonymous =
            Facts::new(&Method::GET, "/res/7", &headers).address("2001:db8:1:2:3::4".parse().unwrap());
        let acme = anonymous.clone().tenant(CallerTenant::new("acme", None));
        let key = |facts, words: &[&str]| resolve(words, facts);
        assert_eq!(key(&acme, &["tenant", "ip"]).as_deref(), Some("tenant:acme"));
        assert_eq!(key(&anonymous, &["tenant", "ip"]).as_deref(), Some("ip:2001:db8:1:2::/64"));
        assert_eq!(key(&anonymous, &["tenant", "principal"]), None);
        assert_eq!(key(&anonymous, &["path"]).as_deref(), Some("path:/res/7"));
        assert_eq!(key(&anonymous, &["literal:all"]).as_deref(), Some("static:all"));
        assert_eq!(key(&anonymous, &["route"]), None);
        assert_eq!(key(&acme, &["tenant+path"]).as_deref(), Some("joined:11:tenant:acme11:path:/res/7"));
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
        for word in ["", "cookie", "header:", "header:a b", "literal:", "ip+", "ip+cookie"] {
            assert!(KeyList::parse(&[word]).is_err(), "{word}");
        }
        assert!(KeyList::parse::<&str>(&[]).is_err());
    }
}
