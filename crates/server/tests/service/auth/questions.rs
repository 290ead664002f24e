//! `ANY /v1/auth`: what proxies ask on behalf of a request.

use std::path::Path;

use http::Method;
use spile_server::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Answer, Spile};

/// Rules as an operator writes them; the tests' own address is a trusted proxy.
const FILE: &str = r#"
[clients]
trusted_proxies = ["127.0.0.1/32"]
[plans]
free = { capacity = 2, refill = "1/s" }
pro = { capacity = 5, refill = "1/s" }
login = { capacity = 1, refill = "1/min" }
everybody = { capacity = 4, refill = "1/s" }
[[rules]]
id = "login"
match = { path = "/login", methods = ["POST"] }
key = ["ip"]
plans = ["login"]
[[rules]]
id = "default"
key = ["tenant", "ip"]
plans = "tenant"
anonymous_plan = "free"
[[rules]]
id = "members"
key = ["tenant"]
plans = "tenant"
[[rules]]
id = "watched"
match = { path = "/watched" }
key = ["ip"]
plans = ["login"]
mode = "shadow"
[[rules]]
id = "global"
match = { path = "/none" }
key = ["literal:all"]
plans = ["everybody"]
[[rules]]
id = "chained"
match = { path = "/chained" }
key = ["ip"]
plans = ["free"]
also = ["global"]
[[tenants]]
id = "acme"
plan = "pro"
api_keys = ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
"#;
/// What the hash above is the hash of.
const ACME_KEY: &str = "test";

async fn start() -> Spile {
    let config = Config::parse(Path::new("spile.toml"), FILE.to_owned(), []);
    Spile::start_with(config.unwrap_or_else(|why| panic!("{why}"))).await
}

async fn ask(spile: &Spile, path: &str, client: &str, headers: &[(&str, &str)]) -> Answer {
    let all: Vec<_> = [("x-forwarded-for", client)].into_iter().chain(headers.iter().copied()).collect();
    spile.get(path, &all).await
}

#[tokio::test]
async fn a_request_passes_until_its_rule_denies_it() {
    let spile = start().await;
    ask(&spile, "/v1/auth/login", "203.0.113.7", &[])
        .await
        .is(200)
        .carries("x-ratelimit-limit", "1")
        .carries("ratelimit-policy", "\"login\";q=1;w=60");
    ask(&spile, "/v1/auth/login", "203.0.113.7", &[])
        .await
        .is(429)
        .carries("retry-after", "60")
        .says("/title", "Rate limit exceeded");
    ask(&spile, "/v1/auth/login", "203.0.113.8", &[]).await.is(200);
}

#[tokio::test]
async fn nginx_may_choose_the_status_that_means_no() {
    let spile = start().await;
    ask(&spile, "/v1/auth/login?denyStatus=403", "203.0.113.7", &[]).await.is(200);
    ask(&spile, "/v1/auth/login?denyStatus=403", "203.0.113.7", &[])
        .await
        .is(403)
        .carries("retry-after", "60");
    for bad in ["200", "503", "abc", ""] {
        let path = format!("/v1/auth/login?denyStatus={bad}");
        ask(&spile, &path, "203.0.113.9", &[]).await.is(400).says("/field", "denyStatus");
    }
    ask(&spile, "/v1/auth/login", "203.0.113.9", &[]).await.is(200);
}

#[tokio::test]
async fn no_spelling_of_a_path_gets_around_its_rule() {
    let spile = start().await;
    let asked = async |uri: &str, client: &str| {
        let about = [("x-original-method", "POST"), ("x-original-uri", uri)];
        ask(&spile, "/v1/auth?denyStatus=403", client, &about).await
    };
    asked("/login", "203.0.113.7").await.is(200).carries("x-ratelimit-limit", "1");
    for spelt in ["/login/", "//login", "/./login", "/x/../login", "/%6Cogin", "/login?next=/", "/login;v=1"]
    {
        asked(spelt, "203.0.113.7").await.is(403).carries("x-ratelimit-limit", "1");
    }
    // What some servers would read in another way is refused, and nothing is charged.
    for unclear in ["/x%2Flogin", "/../login", "/log%00in", "/a\\login"] {
        asked(unclear, "203.0.113.8").await.is(403).says("/field", "path");
    }
    asked("/login", "203.0.113.8").await.is(200);
}

#[tokio::test]
async fn any_method_asks_and_an_unknown_rule_is_a_404() {
    let spile = start().await;
    for method in [Method::HEAD, Method::PUT, Method::OPTIONS, Method::POST] {
        spile.send(method, "/v1/auth/default", &[("x-api-key", ACME_KEY)], "").await.is(200);
    }
    ask(&spile, "/v1/auth/nope", "203.0.113.7", &[]).await.is(404).says("/field", "ruleId");
}

#[tokio::test]
async fn an_api_key_brings_its_tenants_plan() {
    let spile = start().await;
    let acme = [("x-api-key", ACME_KEY)];
    ask(&spile, "/v1/auth/default", "203.0.113.7", &acme).await.is(200).carries("x-ratelimit-limit", "5");
    ask(&spile, "/v1/auth/default", "203.0.113.8", &acme).await.is(200).carries("x-ratelimit-remaining", "3");
    let stranger = [("x-api-key", "made up")];
    ask(&spile, "/v1/auth/default", "203.0.113.7", &stranger).await.is(200).carries("x-ratelimit-limit", "2");
    let by_identity = serde_json::json!({"ruleId": "default", "identity": "tenant:acme"});
    spile.check(by_identity).await.is(200).says("/limit", 5).says("/remaining", 2);
}

#[tokio::test]
async fn a_rule_for_tenants_alone_turns_others_away() {
    let spile = start().await;
    ask(&spile, "/v1/auth/members", "203.0.113.7", &[("x-api-key", ACME_KEY)]).await.is(200);
    ask(&spile, "/v1/auth/members", "203.0.113.7", &[]).await.is(401).says("/field", "key");
    let stranger = serde_json::json!({"ruleId": "members", "identity": "203.0.113.7"});
    spile.check(stranger).await.is(400).says("/field", "identity");
}

#[tokio::test]
async fn the_most_specific_rule_for_the_original_request_decides() {
    let spile = start().await;
    let login = [("x-forwarded-uri", "/login?next=/"), ("x-forwarded-method", "POST")];
    ask(&spile, "/v1/auth", "203.0.113.7", &login).await.is(200).carries("x-ratelimit-limit", "1");
    let nginx = [("x-original-uri", "/login"), ("x-original-method", "POST")];
    ask(&spile, "/v1/auth", "203.0.113.7", &nginx).await.is(429);
    let other = [("x-forwarded-uri", "/login"), ("x-forwarded-method", "GET")];
    ask(&spile, "/v1/auth", "203.0.113.7", &other).await.is(200).carries("x-ratelimit-limit", "2");
}

#[tokio::test]
async fn a_stranger_is_not_believed_about_where_it_comes_from() {
    let config = FILE.replace("127.0.0.1/32", "192.0.2.1/32");
    let config = Config::parse(Path::new("spile.toml"), config, []).unwrap_or_else(|why| panic!("{why}"));
    let spile = Spile::start_with(config).await;
    ask(&spile, "/v1/auth/login", "203.0.113.7", &[]).await.is(200);
    ask(&spile, "/v1/auth/login", "203.0.113.8", &[]).await.is(429);
}

#[tokio::test]
async fn a_rule_that_only_watches_counts_and_never_blocks() {
    let spile = start().await;
    ask(&spile, "/v1/auth/watched", "203.0.113.7", &[]).await.is(200);
    ask(&spile, "/v1/auth/watched", "203.0.113.7", &[]).await.is(200);
    let metrics = spile.admin("/metrics").await.text;
    let watched = "ratelimit_decisions_total{rule=\"watched\",limit=\"shadow:login\",outcome=\"shadow\",source=\"store\"} 1";
    assert!(metrics.contains(watched), "{metrics}");
}

#[tokio::test]
async fn rules_that_are_charged_together_are_charged_all_or_none() {
    let spile = start().await;
    for client in ["203.0.113.1", "203.0.113.1", "203.0.113.2", "203.0.113.2"] {
        ask(&spile, "/v1/auth/chained", client, &[]).await.is(200);
    }
    ask(&spile, "/v1/auth/chained", "203.0.113.3", &[])
        .await
        .is(429)
        .says("/violated-policies/0", "everybody");
    let peek = serde_json::json!({"identity": "ip:203.0.113.3", "plans": ["free"]});
    spile.peek(peek).await.says("/remaining", 2);
    let by_identity = serde_json::json!({"ruleId": "chained", "identity": "somebody"});
    spile.check(by_identity).await.is(429).says("/limitedBy", "everybody");
}

/// The answer to a proxy that sends these headers about a request.
async fn described(spile: &Spile, path: &str, headers: &[(&str, &[u8])]) -> u16 {
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n").into_bytes();
    for (name, value) in [("x-forwarded-for", b"203.0.113.7".as_slice())].iter().chain(headers) {
        request.extend_from_slice(name.as_bytes());
        request.extend_from_slice(b": ");
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let mut stream = TcpStream::connect(spile.http).await.expect("it listens");
    stream.write_all(&request).await.expect("the server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("the server answers");
    String::from_utf8_lossy(&answer)[9..12].parse().expect("a status")
}

#[tokio::test]
async fn a_client_cannot_talk_the_proxy_out_of_a_rule() {
    let spile = start().await;
    let nginx: [(&str, &[u8]); 2] = [("x-original-uri", b"/login"), ("x-original-method", b"POST")];
    assert_eq!(described(&spile, "/v1/auth?denyStatus=403", &nginx).await, 200);
    assert_eq!(described(&spile, "/v1/auth?denyStatus=403", &nginx).await, 403, "drained");
    // What a client sends beside what nginx sets.
    let of_client: [(&str, &[u8]); 8] = [
        ("x-forwarded-uri", b"/free"),
        ("x-forwarded-method", b"GET"),
        ("x-original-url", b"/free"),
        ("x-original-uri", b"/free"),
        ("x-original-method", b"GET"),
        ("X-Forwarded-Uri", b"/login"),
        ("x-forwarded-uri", b""),
        ("x-forwarded-method", b"get"),
    ];
    for sent in of_client {
        let headers = [nginx.as_slice(), &[sent]].concat();
        assert_eq!(described(&spile, "/v1/auth?denyStatus=403", &headers).await, 403, "{sent:?}");
        assert_ne!(described(&spile, "/v1/auth", &headers).await, 200, "{sent:?}");
    }
    // What the client makes of its own request line.
    for uri in [
        b"/login?x=<".as_slice(),
        b"/login?x=\"",
        b"/login?x=>",
        b"/login?x=\xff",
        b"//login",
        b"/%6Cogin",
        b"",
        b"login",
    ] {
        let headers = [("x-original-uri", uri), ("x-original-method", b"POST")];
        assert_ne!(described(&spile, "/v1/auth?denyStatus=403", &headers).await, 200, "{uri:?}");
    }
    for method in [b"post".as_slice(), b"Post", b"", b"PO ST", b"\xff"] {
        let headers = [("x-original-uri", b"/login".as_slice()), ("x-original-method", method)];
        assert_ne!(described(&spile, "/v1/auth?denyStatus=403", &headers).await, 200, "{method:?}");
    }
    let half: [(&str, &[u8]); 1] = [("x-original-uri", b"/login")];
    assert_eq!(described(&spile, "/v1/auth", &half).await, 400, "nginx itself asks by GET");
}

#[tokio::test]
async fn each_proxy_is_believed_by_its_own_headers() {
    let login: &[u8] = b"/login";
    for (proxy, headers) in [
        ("nginx", [("x-original-uri", login), ("x-original-method", b"POST")]),
        ("nginx", [("x-original-url", b"https://shop.example/login?next=/"), ("x-original-method", b"POST")]),
        ("traefik", [("x-forwarded-uri", login), ("x-forwarded-method", b"POST")]),
        ("caddy", [("x-forwarded-uri", login), ("x-forwarded-method", b"POST")]),
    ] {
        for file in [FILE.to_owned(), format!("{FILE}\n[forward_auth]\nproxy = \"{proxy}\"\n")] {
            let spile =
                Spile::start_with(Config::parse(Path::new("spile.toml"), file, []).expect("it works")).await;
            assert_eq!(described(&spile, "/v1/auth", &headers).await, 200, "{headers:?}");
            assert_eq!(described(&spile, "/v1/auth", &headers).await, 429, "{headers:?}");
        }
    }
    // If the file says which proxy asks, the headers of other proxies are ignored.
    let file = format!("{FILE}\n[forward_auth]\nproxy = \"traefik\"\n");
    let spile = Spile::start_with(Config::parse(Path::new("spile.toml"), file, []).expect("it works")).await;
    let both: [(&str, &[u8]); 4] = [
        ("x-forwarded-uri", login),
        ("x-forwarded-method", b"POST"),
        ("x-original-uri", b"/free"),
        ("x-original-method", b"GET"),
    ];
    assert_eq!(described(&spile, "/v1/auth", &both).await, 200);
    assert_eq!(described(&spile, "/v1/auth", &both).await, 429);
    assert_eq!(described(&spile, "/v1/auth", &both[2..]).await, 400, "Traefik said nothing");
}

#[tokio::test]
async fn envoy_asks_by_the_path_below_the_rule() {
    let file = format!(
        "{FILE}\n[[rules]]\nid = \"pages\"\nmatch = {{ path = \"/none\" }}\nkey = [\"path\"]\nplans = [\"login\"]\n[forward_auth]\nproxy = \"envoy\"\n"
    );
    let spile = Spile::start_with(Config::parse(Path::new("spile.toml"), file, []).expect("it works")).await;
    for (path, status) in [
        ("/v1/auth/pages/a/b?x=1", 200),
        ("/v1/auth/pages/a/./b", 429),
        ("/v1/auth/pages//a/b", 429),
        ("/v1/auth/pages/a/c", 200),
        ("/v1/auth/pages", 200),
        ("/v1/auth/pages/", 429),
        ("/v1/auth/pages/a%2Fb", 400),
        ("/v1/auth/nothing/a", 404),
    ] {
        assert_eq!(described(&spile, path, &[]).await, status, "{path}");
    }
}

#[tokio::test]
async fn a_url_whose_path_or_host_is_in_doubt_is_refused() {
    let spile = start().await;
    let asked = async |url: &str, host: &str| {
        let about = [("x-original-method", "POST"), ("x-original-url", url), ("x-original-host", host)];
        ask(&spile, "/v1/auth", "203.0.113.7", &about).await
    };
    // nginx puts such URLs together of the client's `Host` and the path `/login`.
    for url in ["http://shop?/login", "http://shop#/login", "http://shop", "shop", "login"] {
        asked(url, "").await.is(400).says("/field", "path");
    }
    asked("http://free/login", "shop").await.is(400).says("/field", "path");
    for host in ["a:+80", "a[b", "..", "a..b", "a:", "u@a", "a%2eb"] {
        asked("/login", host).await.is(400);
        asked(&format!("http://{host}/login"), "").await.is(400);
    }
    asked("http://Shop:80/login?next=http://free?", "shop").await.is(200).carries("x-ratelimit-limit", "1");
    asked("/login", "shop").await.is(429);
}

#[tokio::test]
async fn a_client_cannot_choose_the_host_or_the_user() {
    let rules = "[clients]\ntrusted_proxies = [\"127.0.0.1/32\"]
        [[rules]]\nid = \"shop\"\nmatch = { hosts = [\"shop.example\"] }\nplans = [\"one\"]
        [[rules]]\nid = \"user\"\nmatch = { path = \"/user\" }\nkey = [\"principal\"]\nplans = [\"one\"]
        [plans.one]\ncapacity = 1\nrefill = \"1/h\"";
    let spile =
        Spile::start_with(Config::parse(Path::new("spile.toml"), rules.to_owned(), []).expect("it works"))
            .await;
    let caddy: [(&str, &[u8]); 3] =
        [("x-forwarded-uri", b"/s"), ("x-forwarded-method", b"GET"), ("x-forwarded-host", b"shop.example")];
    let copied: [(&str, &[u8]); 3] =
        [("x-original-uri", b"/s"), ("x-original-method", b"GET"), ("x-original-host", b"evil.example")];
    let nginx: [(&str, &[u8]); 3] =
        [("x-original-uri", b"/s"), ("x-original-method", b"GET"), ("x-original-host", b"shop.example")];
    assert_eq!(described(&spile, "/v1/auth", &caddy).await, 200);
    assert_eq!(described(&spile, "/v1/auth", &caddy).await, 429, "drained");
    for headers in [
        [caddy.as_slice(), &copied].concat(),
        [caddy.as_slice(), &copied[..2]].concat(),
        [nginx.as_slice(), &[("x-original-url", b"http://evil.example/s".as_slice())]].concat(),
        [nginx.as_slice(), &[("x-original-host", b"evil.example".as_slice())]].concat(),
    ] {
        assert_eq!(described(&spile, "/v1/auth", &headers).await, 400, "{headers:?}");
    }
    let user = |names: &[&'static [u8]]| -> Vec<(&str, &[u8])> {
        names.iter().map(|name| ("x-forwarded-user", *name)).collect()
    };
    assert_eq!(described(&spile, "/v1/auth/user", &user(&[b"ann"])).await, 200);
    assert_eq!(described(&spile, "/v1/auth/user", &user(&[b"ann"])).await, 429, "drained");
    assert_eq!(described(&spile, "/v1/auth/user", &user(&[b"made-up", b"ann"])).await, 401, "which of them?");
    assert_eq!(described(&spile, "/v1/auth/user", &user(&["josé".as_bytes()])).await, 200, "names are UTF-8");
}
