//! Who pays, as a rule lists it: the first resolver that answers.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use spile_tower::client::{Networks, peer_of};
use spile_tower::key::{
    ClientIp, FirstOf, Fixed, Header, Joined, KeyResolver, MatchedRoute, Path, Principal, PrincipalKey,
    PrincipalResolver, ResolvedKey, TenantKey,
};

use crate::config::Clients;

/// The resolvers of a rule, and the words that they were written in.
#[derive(Clone, Debug)]
pub(crate) struct KeyList {
    words: Vec<String>,
    resolver: Arc<FirstOf>,
    shared: Option<ResolvedKey>,
}

impl KeyList {
    /// What a rule resolves by that does not say: the tenant, else the API key, else the address.
    pub(crate) fn usual(clients: &Clients) -> Self {
        Self::new(&["tenant", "header:x-api-key", "ip"].map(str::to_owned), clients)
            .expect("these are resolvers")
    }

    pub(crate) fn new(words: &[String], clients: &Clients) -> Result<Self, BadResolver> {
        let resolvers: Result<Vec<_>, _> = words.iter().map(|words| joined(words, clients)).collect();
        let resolver = Arc::new(FirstOf::new(resolvers?));
        let only_literal = matches!(words, [word] if word.starts_with(LITERAL) && !word.contains('+'));
        let (nobody, ()) = http::Request::new(()).into_parts();
        let shared = only_literal.then(|| resolver.resolve(&nobody)).flatten();
        Ok(Self { words: words.to_vec(), resolver, shared })
    }

    pub(crate) fn resolve(&self, request: &Parts) -> Option<ResolvedKey> {
        self.resolver.resolve(request)
    }

    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// The one key that everybody shares, where nothing about the request matters.
    pub(crate) const fn shared(&self) -> Option<&ResolvedKey> {
        self.shared.as_ref()
    }
}

const LITERAL: &str = "literal:";
const HEADER: &str = "header:";

/// Resolvers joined by `+` make one key of what each finds.
fn joined(words: &str, clients: &Clients) -> Result<Box<dyn KeyResolver>, BadResolver> {
    if !words.contains('+') {
        return single(words, clients);
    }
    let parts: Result<Vec<_>, _> = words.split('+').map(|word| single(word.trim(), clients)).collect();
    Ok(Box::new(Joined::new(parts?)))
}

fn single(word: &str, clients: &Clients) -> Result<Box<dyn KeyResolver>, BadResolver> {
    let bad = || BadResolver(word.to_owned());
    Ok(match word {
        "tenant" => Box::new(TenantKey),
        "path" => Box::new(Path),
        "route" => Box::new(MatchedRoute),
        "ip" => Box::new(ClientIp::behind(clients.trusted_proxies.clone()).ipv6_prefix(clients.ipv6_prefix)),
        "principal" => Box::new(PrincipalKey::by(Reported {
            header: clients.principal_header.clone(),
            trusted: clients.trusted_proxies.clone(),
        })),
        _ => match (word.strip_prefix(HEADER), word.strip_prefix(LITERAL)) {
            (Some(name), _) => Box::new(Header::named(name).map_err(|_| bad())?),
            (_, Some(name)) if !name.is_empty() => Box::new(Fixed::new(name)),
            _ => return Err(bad()),
        },
    })
}

/// The user that the gateway has authenticated, or that a trusted proxy says it has. From anybody else the header counts for nothing.
struct Reported {
    header: HeaderName,
    trusted: Networks,
}

impl PrincipalResolver for Reported {
    fn principal<'r>(&self, request: &'r Parts) -> Option<Cow<'r, str>> {
        // Whoever this process has authenticated itself, by a signed token, needs no proxy's word.
        if let Some(Principal(name)) = request.extensions.get() {
            return Some(Cow::Borrowed(name));
        }
        peer_of(request).filter(|&peer| self.trusted.contain(peer))?;
        request.headers.get(&self.header)?.to_str().ok().map(Cow::Borrowed)
    }
}

/// A word that is no resolver.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{0}` finds no key: write tenant, principal, ip, path, route, header:NAME or literal:NAME, joined by + if need be"
)]
pub(crate) struct BadResolver(String);
