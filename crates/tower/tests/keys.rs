//! Keys of different kinds are never equal, and a value that is too long is still a key.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use http::request::Parts;
use proptest::prelude::*;
use spile_core::Key;
use spile_tower::client::PeerAddr;
use spile_tower::key::{
    ClientIp, Custom, FirstOf, Fixed, HeaderKey, Joined, KeyResolver, MatchedRoute, PathKey, Principal,
    PrincipalKey, PrincipalResolver, RouteKey, Tenant, TenantKey,
};

fn empty() -> Parts {
    http::Request::new(()).into_parts().0
}

fn text(key: &impl KeyResolver, request: &Parts) -> Option<String> {
    key.resolve(request).map(|key| key.as_str().to_owned())
}

/// A request that says the same in every place that a key may be read from.
fn echo(value: &str) -> Parts {
    let mut request = empty();
    request.headers.insert("x-api-key", value.parse().unwrap());
    request.headers.insert("x-user", value.parse().unwrap());
    request.extensions.insert(Principal(value.to_owned()));
    request.extensions.insert(Tenant::new(value));
    request.extensions.insert(MatchedRoute(Arc::from(value)));
    request
}

#[test]
fn each_resolver_reads_its_own_part_of_the_request() {
    let mut request = echo("acme");
    request.uri = "/scores/7?page=2".parse().unwrap();
    request.extensions.insert(PeerAddr(SocketAddr::from(([203, 0, 113, 7], 80))));
    let hashed = text(&HeaderKey::api_key(), &request).unwrap();
    assert!(hashed.starts_with("sha256:") && !hashed.contains("acme"), "{hashed}");
    assert_eq!(text(&PrincipalKey::new(), &request).unwrap(), "principal:acme");
    assert_eq!(text(&TenantKey, &request).unwrap(), "tenant:acme");
    assert_eq!(text(&RouteKey, &request).unwrap(), "route:acme");
    assert_eq!(text(&PathKey, &request).unwrap(), "path:/scores/7");
    assert_eq!(text(&ClientIp::direct(), &request).unwrap(), "ip:203.0.113.7");
    assert_eq!(text(&Fixed::new("everyone"), &request).unwrap(), "static:everyone");
    assert_eq!(text(&TenantKey.and(PathKey), &request).unwrap(), "joined:11:tenant:acme14:path:/scores/7");
}

#[test]
fn a_request_that_says_nothing_has_no_key() {
    let request = empty();
    assert!(HeaderKey::api_key().resolve(&request).is_none());
    assert!(PrincipalKey::new().resolve(&request).is_none());
    assert!(TenantKey.resolve(&request).is_none());
    assert!(RouteKey.resolve(&request).is_none());
    assert!(ClientIp::direct().resolve(&request).is_none());
    assert!(TenantKey.and(PathKey).resolve(&request).is_none());
    assert!(FirstOf::new([]).resolve(&request).is_none());
    assert!(Joined::new([]).resolve(&request).is_none());
}

#[test]
fn the_first_resolver_that_knows_is_the_one_that_counts() {
    let key = TenantKey.or(HeaderKey::api_key()).or(PathKey);
    assert_eq!(text(&key, &echo("acme")).unwrap(), "tenant:acme");
    assert_eq!(text(&key, &empty()).unwrap(), "path:/");
}

#[test]
fn authentication_of_any_kind_can_name_the_principal() {
    #[derive(Clone)]
    struct Session {
        user: u64,
    }
    struct BySession;
    impl PrincipalResolver for BySession {
        fn principal<'r>(&self, request: &'r Parts) -> Option<Cow<'r, str>> {
            request.extensions.get::<Session>().map(|session| session.user.to_string().into())
        }
    }
    let mut request = empty();
    request.extensions.insert(Session { user: 123 });
    assert_eq!(text(&PrincipalKey::by(BySession), &request).unwrap(), "principal:123");
}

#[test]
fn a_header_that_looks_like_an_address_is_not_that_address() {
    let mut request = echo("203.0.113.7");
    request.extensions.insert(PeerAddr(SocketAddr::from(([203, 0, 113, 7], 80))));
    assert_ne!(HeaderKey::api_key().resolve(&request), ClientIp::direct().resolve(&request));
}

fn every_kind() -> Vec<Box<dyn KeyResolver>> {
    vec![
        Box::new(HeaderKey::api_key()),
        Box::new(HeaderKey::named("x-user").unwrap()),
        Box::new(PrincipalKey::new()),
        Box::new(TenantKey),
        Box::new(RouteKey),
        Box::new(Custom::new("a", |request| request.extensions.get().map(|Principal(name)| name.into()))),
        Box::new(Custom::new("b", |request| request.extensions.get().map(|Principal(name)| name.into()))),
        Box::new(TenantKey.and(PrincipalKey::new())),
        Box::new(TenantKey.and(TenantKey).and(TenantKey)),
    ]
}

proptest! {
    #[test]
    fn no_two_kinds_ever_make_the_same_key(one in "[!-~]{1,40}", other in "[!-~]{1,40}") {
        let (one, other) = (echo(&one), echo(&other));
        let kinds = every_kind();
        for (index, kind) in kinds.iter().enumerate() {
            for another in &kinds[index + 1..] {
                prop_assert_ne!(kind.resolve(&one), another.resolve(&other));
            }
        }
    }

    #[test]
    fn different_values_never_make_the_same_key(one in "[!-~]{1,2000}", other in "[!-~]{1,2000}") {
        prop_assume!(one != other);
        for kind in every_kind() {
            prop_assert_ne!(kind.resolve(&echo(&one)), kind.resolve(&echo(&other)));
        }
    }

    #[test]
    fn joined_parts_cannot_borrow_from_each_other(a in "[a-c:0-9]{1,9}", b in "[a-c:0-9]{1,9}",
                                                  c in "[a-c:0-9]{1,9}", d in "[a-c:0-9]{1,9}") {
        prop_assume!((&a, &b) != (&c, &d));
        let joined = |tenant: &str, user: &str| {
            let mut request = empty();
            request.extensions.insert(Tenant::new(tenant));
            request.extensions.insert(Principal(user.to_owned()));
            TenantKey.and(PrincipalKey::new()).resolve(&request)
        };
        prop_assert_ne!(joined(&a, &b), joined(&c, &d));
    }

    #[test]
    fn a_key_of_any_length_is_a_valid_key(value in "[!-~]{1,9000}") {
        for kind in every_kind() {
            let key = kind.resolve(&echo(&value)).unwrap();
            prop_assert!(Key::new(key.as_str()).is_ok());
        }
    }
}
