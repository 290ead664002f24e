//! What holds behind every proxy.

use std::path::Path;
use std::process::Command;

use spile_server::Config;

use super::{Proxy, Site, blocks};
use crate::support::{Answer, Spile};

/// The pages that show how proxies are set up.
const PAGES: [&str; 2] = [
    include_str!("../../../../../../docs/guide/forward-auth.md"),
    include_str!("../../../../../../docs/guide/other-proxies.md"),
];

/// One token for a login, plenty for the rest: a login that passes for something else passes.
const RULES: &str = r#"
[plans]
pages = { capacity = 1000, refill = "1/s" }
login = { capacity = 1, refill = "1/min" }
[[rules]]
id = "login"
match = { hosts = ["shop"], path = "/login", methods = ["POST"] }
key = ["ip"]
plans = ["login"]
[[rules]]
id = "default"
key = ["ip"]
plans = ["pages"]
"#;

/// A tenant with one token for its orders. Its key is `test`.
const TENANT: &str = r#"
[[rules]]
id = "orders"
match = { path = "/orders" }
key = ["tenant"]
plans = ["login"]
[[tenants]]
id = "acme"
plan = "login"
api_keys = ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
"#;

/// The clients of the tests. Neither is a trusted proxy.
const ANN: &str = "127.0.0.7";
const BOB: &str = "127.0.0.8";

/// What a client may send to describe another request, or to pass for somebody else.
const LIES: [(&str, &str); 12] = [
    ("X-Forwarded-Uri", "/free"),
    ("X-Forwarded-Method", "GET"),
    ("X-Forwarded-Host", "free"),
    ("X-Original-URI", "/free"),
    ("X-Original-URL", "http://shop/free"),
    ("X-Original-URL", "/free"),
    ("X-Original-Method", "GET"),
    ("X-Original-Host", "free"),
    ("X-Forwarded-For", "1.2.3.4"),
    ("X-Forwarded-For", "1.2.3.4, 127.0.0.1"),
    ("X-Real-IP", "1.2.3.4"),
    ("Forwarded", "for=1.2.3.4"),
];

/// Headers that a proxy is told to take away from the request.
const TAKEN_AWAY: [&str; 2] = [
    "X-Forwarded-For",
    "X-Forwarded-Uri, X-Forwarded-Method, X-Original-URI, X-Original-URL, X-Original-Method",
];

/// Hosts that a request for `http://shop/login` names beside. Some make a URL with another path.
const HOSTS: [&str; 5] = ["shop", "free", "free?", "free#", "free/?"];

/// Other ways to write `POST /login`, and queries that no URI may have.
const SPELLINGS: [&[u8]; 12] = [
    b"POST /login?x=<",
    b"POST /login?x=\"",
    b"POST /login?x=>",
    b"POST /login?x=\xff",
    b"post /login",
    b"POST //login",
    b"POST /%6cogin",
    b"POST /login/",
    b"POST /x/../login",
    b"POST shop:/login",
    b"POST shop:login",
    b"POST login",
];

/// A kind of proxy, and how the guide sets it up.
pub(super) struct Kind {
    /// The heading of its section.
    pub(super) heading: &'static str,
    /// How it is started with the settings of that section.
    pub(super) command: fn(&Site, &str) -> Command,
    /// What callers get that are over their limit.
    pub(super) refusal: u16,
    /// What callers get while Spile is down.
    pub(super) while_down: u16,
}

/// A proxy that asks a Spile.
struct Edge {
    proxy: Proxy,
    spile: Spile,
}

impl Kind {
    /// The proxy lets through what the rules allow, and tells callers when to come back.
    pub(super) async fn limits_by_the_rules(&self) -> Answer {
        let edge = self.start(RULES).await;
        let passed = edge.proxy.ask(ANN, b"POST /login?next=/", &[]).await.is(200);
        assert!(passed.text.contains("the page"), "{passed:?}");
        let refused =
            edge.proxy.ask(ANN, b"POST /login", &[]).await.is(self.refusal).carries("retry-after", "60");
        assert!(!refused.text.contains("the page"), "{refused:?}");
        edge.proxy.ask(ANN, b"GET /login", &[]).await.is(200);
        edge.proxy.ask(BOB, b"POST /login", &[]).await.is(200);
        edge.proxy.ask(BOB, b"POST /login", &[]).await.is(self.refusal);
        refused
    }

    /// The same for a proxy that hands on Spile's own refusal as it is.
    pub(super) async fn hands_on_the_refusal(&self) {
        self.limits_by_the_rules()
            .await
            .carries("ratelimit", "\"login\";r=0;t=60")
            .carries("x-ratelimit-remaining", "0")
            .carries("cache-control", "no-store")
            .carries("content-type", "application/problem+json");
    }

    /// Whatever a client sends along, and however it writes the request, it stays limited.
    pub(super) async fn is_not_fooled(&self) {
        let edge = self.start(RULES).await;
        edge.proxy.ask(ANN, b"POST /login", &[]).await.is(200);
        for (name, value) in LIES {
            let answer = edge.proxy.ask(ANN, b"POST /login", &[(name, value.as_bytes())]).await;
            assert_eq!(answer.status, self.refusal, "{name}: {value}: {answer:?}");
        }
        for begins in SPELLINGS {
            let answer = edge.proxy.ask(ANN, begins, &[]).await;
            assert!(answer.status.is_client_error(), "{}: {answer:?}", begins.escape_ascii());
        }
        for names in TAKEN_AWAY {
            let answer = edge.proxy.ask(ANN, b"POST /login", &[("Connection", names.as_bytes())]).await;
            assert!(answer.status.is_client_error(), "Connection: {names}: {answer:?}");
        }
        for host in HOSTS {
            let answer = edge.proxy.ask(ANN, b"POST http://shop/login", &[("Host", host.as_bytes())]).await;
            assert!(answer.status.is_client_error(), "{host}: {answer:?}");
        }
        // How Spile says "no" is for the operator to choose.
        edge.proxy.ask(ANN, b"POST /login?denyStatus=404", &[]).await.is(self.refusal);
        edge.proxy.ask(ANN, b"POST /free", &[]).await.is(200);
        edge.proxy.ask(ANN, b"GET /login", &[]).await.is(200);
    }

    /// A client that names itself in the principal header is not believed.
    pub(super) async fn believes_no_name_of_a_client(&self) {
        let named: &[(&str, &[u8])] = &[("X-Forwarded-User", b"eve")];
        let edge = self.start(&RULES.replacen(r#"["ip"]"#, r#"["principal"]"#, 1)).await;
        edge.proxy.ask(ANN, b"POST /login", named).await.is(401);

        let edge = self.start(&RULES.replacen(r#"["ip"]"#, r#"["principal", "ip"]"#, 1)).await;
        edge.proxy.ask(ANN, b"POST /login", &[]).await.is(200);
        edge.proxy.ask(ANN, b"POST /login", named).await.is(self.refusal);
    }

    /// The key that a client sends reaches Spile, and a wrong one is refused.
    pub(super) async fn passes_on_the_key_of_a_tenant(&self) {
        let edge = self.start(&format!("{RULES}{TENANT}")).await;
        let known: &[(&str, &[u8])] = &[("X-API-Key", b"test")];
        edge.proxy.ask(ANN, b"POST /orders", known).await.is(200);
        edge.proxy.ask(BOB, b"POST /orders", known).await.is(self.refusal);
        edge.proxy.ask(ANN, b"POST /orders", &[("X-API-Key", b"wrong")]).await.is(401);
        edge.proxy.ask(ANN, b"POST /orders", &[]).await.is(401);
    }

    /// A page that comes from the proxy's cache is limited, too. Returns what the caller got whose page came from there.
    pub(super) async fn limits_what_it_has_cached(&self) -> Answer {
        let edge = self.start(&RULES.replacen("POST", "GET", 1)).await;
        edge.proxy.ask(ANN, b"GET /login", &[]).await.is(200);
        let cached = edge.proxy.ask(BOB, b"GET /login", &[]).await.is(200);
        edge.proxy.ask(ANN, b"GET /login", &[]).await.is(self.refusal);
        cached
    }

    /// While Spile is down, callers get what the guide says.
    pub(super) async fn fails_closed(&self) {
        self.answers_while_down(self.section(), self.while_down).await;
        assert!(self.section().contains(&format!("answers {}", self.while_down)), "the guide says so");
    }

    /// With this change to the guide's section, requests pass while Spile is down.
    pub(super) async fn fails_open(&self, change: impl Fn(&str) -> String) {
        self.answers_while_down(&change(self.section()), 200).await;
    }

    async fn answers_while_down(&self, section: &str, status: u16) {
        let edge = self.start_as(section, RULES).await;
        edge.proxy.ask(ANN, b"GET /", &[]).await.is(200);
        edge.spile.stop().await.expect("the server ends by itself");
        edge.proxy.ask(ANN, b"GET /", &[]).await.is(status);
    }

    async fn start(&self, rules: &str) -> Edge {
        self.start_as(self.section(), rules).await
    }

    async fn start_as(&self, section: &str, rules: &str) -> Edge {
        // A page may say once for all of its proxies what `spile.toml` needs.
        let file = blocks(section, "toml").into_iter().chain(blocks(self.page(), "toml")).next();
        // Some proxies are elsewhere in the guide; those of the tests are here.
        let file = file.expect("the guide says what Spile needs").replace("10.244.0.0/16", "127.0.0.1/32");
        let config = Config::parse(Path::new("spile.toml"), format!("{file}{rules}"), []);
        let spile = Spile::start_with(config.unwrap_or_else(|why| panic!("{why}"))).await;
        let site = Site::before(spile.http).await;
        let command = (self.command)(&site, section);
        Edge { proxy: Proxy::start(site, command).await, spile }
    }

    fn page(&self) -> &'static str {
        let heading = format!("\n## {}\n", self.heading);
        PAGES.into_iter().find(|page| page.contains(&heading)).expect("the guide has the section")
    }

    fn section(&self) -> &'static str {
        let (_, rest) = self.page().split_once(&format!("\n## {}\n", self.heading)).unwrap_or_default();
        rest.split_once("\n## ").map_or(rest, |(section, _)| section)
    }
}
