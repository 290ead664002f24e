//! What holds unless it is said otherwise: adding to a file takes no limit away, and made-up names buy nothing.

use std::path::Path;
use std::process::Output;

use http::Method;
use serde_json::json;
use spile_server::{Config, StoreUrl};
use spile_testkit::redis::RedisServer;

use crate::doors::{House, Store};
use crate::support::{Office, Process, Spile};

/// How many of so many requests pass the gateway.
async fn passed(
    house: &House,
    requests: usize,
    fields: impl Fn(usize) -> Vec<(&'static str, String)>,
) -> usize {
    let to = house.spile.gateway.expect("the listener is on");
    let mut passed = 0;
    for request in 0..requests {
        let fields = fields(request);
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = house.spile.send_to(to, Method::GET, "/", &fields, "").await;
        passed += usize::from(answer.status == 200);
    }
    passed
}

#[tokio::test]
async fn a_file_that_adds_a_plan_a_rule_or_a_tenant_keeps_every_other_limit() {
    for added in [
        "[plans.gold]\ncapacity = 50\nrefill = \"1/s\"",
        "[[rules]]\nid = \"login\"\nmatch = { path = \"/login\" }\nplans = [\"free\"]",
        "[[tenants]]\nid = \"acme\"\nplan = \"pro\"",
        "[plans.gold]\ncapacity = 50\nrefill = \"1/s\"\n[[rules]]\nid = \"a\"\nmatch = { path = \"/a\" }\nplans = [\"gold\"]",
    ] {
        let house = House::with(added, &Store::Memory).await;
        assert_eq!(passed(&house, 15, |_| Vec::new()).await, 10, "{added}");
        for plan in ["free", "pro", "enterprise"] {
            house.spile.check(json!({"identity": "a", "plans": [plan]})).await.is(200);
        }
        house.spile.check(json!({"ruleId": "default", "identity": "a"})).await.is(200);
    }
}

#[tokio::test]
async fn made_up_api_keys_are_held_by_address_at_every_door() {
    let tenant = "[[tenants]]\nid = \"acme\"\nplan = \"pro\"\napi_keys = [\"sha256:e4f0e7ec3dd1b5edcbd2db0e3b27c7a0a47cc0a8f3d6e70e9f5d6b9e0b1c2d3e\"]";
    let made_up = |request: usize| vec![("x-api-key", format!("made-up-{request}"))];
    let house = House::with("[plans.unused]\nrefill = \"1/s\"", &Store::Memory).await;
    assert_eq!(passed(&house, 30, made_up).await, 10, "the gateway without tenants");
    let house = House::with(tenant, &Store::Memory).await;
    assert_eq!(passed(&house, 30, made_up).await, 0, "the gateway with tenants knows them for wrong");
    for tables in ["[plans.unused]\nrefill = \"1/s\"", tenant] {
        let house = House::with(tables, &Store::Memory).await;
        let (mut auth, mut pings) = (0, 0);
        for request in 0..130 {
            let key = format!("made-up-{request}");
            let original = [("x-original-method", "GET"), ("x-original-uri", "/"), ("x-api-key", &key)];
            auth += usize::from(house.spile.get("/v1/auth", &original).await.status == 200);
            pings += usize::from(house.spile.get("/api/ping", &[("x-api-key", &key)]).await.status == 200);
        }
        assert_eq!(
            (auth, pings),
            (10, 100),
            "forward-auth by address; pings by ten times the plan: {tables}"
        );
    }
}

#[tokio::test]
async fn a_ping_counts_by_the_key_as_it_is_sent() {
    let spile = Spile::start().await;
    for key in ["one", "two"] {
        for left in (0..10).rev() {
            let answer = spile.get("/api/ping", &[("x-api-key", key)]).await.is(200);
            answer.carries("x-ratelimit-remaining", &left.to_string());
        }
        spile.get("/api/ping", &[("x-api-key", key)]).await.is(429);
    }
    spile.get("/api/ping", &[]).await.is(200).carries("x-ratelimit-remaining", "9");
}

#[tokio::test]
async fn a_ping_by_key_is_under_all_of_its_rule() {
    let also = "[[rules]]\nid = \"default\"\nplans = [\"pro\"]\nalso = [\"all\"]
        [[rules]]\nid = \"all\"\nmatch = { path = \"/all\" }\nkey = [\"literal:all\"]\nplans = [\"free\"]";
    let tenants_only = "[[rules]]\nid = \"default\"\nplans = \"tenant\"";
    let banned = "[[rules]]\nid = \"default\"\nplans = \"banned\"";
    let guesses =
        "[[rules]]\nid = \"default\"\nplans = \"tenant\"\n[[tenants]]\nid = \"acme\"\nplan = \"pro\"";
    for (rules, pass, refused) in
        [(also, 10, 429), (tenants_only, 0, 401), (banned, 0, 403), (guesses, 0, 429)]
    {
        let house = House::with(rules, &Store::Memory).await;
        let mut statuses = Vec::new();
        for request in 0..15 {
            let key = format!("made-up-{request}");
            statuses.push(house.spile.get("/api/ping", &[("x-api-key", &key)]).await.status.as_u16());
        }
        let passed = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!((passed, statuses[14]), (pass, refused), "{rules}: {statuses:?}");
    }
}

#[tokio::test]
async fn guessing_keys_is_held_by_address_whatever_a_rule_knows_its_callers_by() {
    let rules =
        "[[rules]]\nid = \"x\"\nmatch = { path = \"/x\" }\nkey = [\"header:x-who\"]\nplans = [\"free\"]
        [[tenants]]\nid = \"acme\"\nplan = \"pro\"";
    let house = House::with(rules, &Store::Memory).await;
    let to = house.spile.gateway.expect("the listener is on");
    let mut statuses = Vec::new();
    for guess in 0..12 {
        let (who, key) = (guess.to_string(), format!("guess-{guess}"));
        let answer =
            house.spile.send_to(to, Method::GET, "/x", &[("x-who", &who), ("x-api-key", &key)], "").await;
        statuses.push(answer.status.as_u16());
    }
    assert_eq!(statuses, [[401; 10].as_slice(), &[429; 2]].concat());
}

#[tokio::test]
async fn a_rule_by_the_api_key_as_it_is_sent_finds_it_at_every_door() {
    let rules = "[[rules]]\nid = \"x\"\nmatch = { path = \"/x\" }\nkey = [\"header:x-api-key\"]\nplans = [\"free\"]
        [[tenants]]\nid = \"acme\"\nplan = \"pro\"\napi_keys = [\"sha256:e4f0e7ec3dd1b5edcbd2db0e3b27c7a0a47cc0a8f3d6e70e9f5d6b9e0b1c2d3e\"]";
    let house = House::with(rules, &Store::Memory).await;
    let to = house.spile.gateway.expect("the listener is on");
    let key = ("x-api-key", crate::doors::API_KEY);
    let answer = house.spile.send_to(to, Method::GET, "/x", &[key], "").await.is(200);
    answer.carries("x-ratelimit-remaining", "9");
    house.spile.get("/v1/auth/x", &[key]).await.is(200).carries("x-ratelimit-remaining", "8");
}

#[tokio::test]
async fn what_a_header_says_is_hashed_before_it_is_stored() {
    let redis = RedisServer::start();
    let text =
        "[[rules]]\nid = \"who\"\nmatch = { path = \"/who\" }\nkey = [\"header:x-who\"]\nplans = [\"free\"]"
            .to_owned();
    let mut config = Config::parse(Path::new("spile.toml"), text, []).expect("it works");
    config.store.url = StoreUrl::Redis(redis.url());
    config.store.timeout = std::time::Duration::from_secs(5);
    let spile = Spile::start_with(config).await;
    spile.get("/v1/auth/who", &[("x-who", "k-secret")]).await.is(200);
    spile.get("/api/ping", &[("x-api-key", "k-secret")]).await.is(200);
    let keys = format!("{:?}", redis.command(&["KEYS", "*"]));
    assert!(keys.contains("sha256") && !keys.contains("k-secret"), "{keys}");
}

const UNLIMITED: &str = r#"
unmatched = "pass"
[listen]
gateway = "127.0.0.1:0"
[[rules]]
id = "login"
match = { path = "/login", methods = ["POST"] }
key = ["header:x-who"]
plans = ["free"]
[[routes]]
path = "/login"
upstream = "http://127.0.0.1:9"
[[routes]]
path = "/scores"
upstream = "http://127.0.0.1:9"
"#;

#[test]
fn a_file_that_leaves_requests_without_a_limit_is_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spile.toml");
    std::fs::write(&file, UNLIMITED).expect("the folder is ours");
    let path = file.to_str().expect("a path of text");
    let Output { stdout, status, .. } = Process::run_with(&["config", "check", path], &[]);
    let told = String::from_utf8_lossy(&stdout);
    assert!(status.success() && told.contains("works: 3 plans, 1 rules"), "{told}");
    let server = Process::serve(&["--config", path]);
    for words in [
        "warning: route `/scores`: no rule limits its requests",
        "warning: unmatched = \"pass\": requests that no rule matches are not limited",
        "warning: rule `login`: requests without a key (header:x-who) are refused with 401",
    ] {
        assert!(told.contains(words), "{words} in {told}");
        assert!(server.banner.contains(words), "{words} in {}", server.banner);
    }
    assert!(!told.contains("route `/login`"), "{told}");
}

#[tokio::test]
async fn operators_see_which_routes_no_rule_limits() {
    let office = Office::open_with(UNLIMITED).await;
    office
        .get("/admin/v1/routes")
        .await
        .is(200)
        .says("/routes/0/path", "/login")
        .says("/routes/0/limited", true)
        .says("/routes/1/path", "/scores")
        .says("/routes/1/limited", false);
}

#[test]
fn whether_unmatched_requests_pass_is_said_in_one_way() {
    let parse = |text: &str, variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::parse(Path::new("spile.toml"), text.to_owned(), variables).map_err(|why| why.to_string())
    };
    assert!(parse("", &[("SPILE_UNMATCHED", "pass")]).is_ok_and(|config| config.unmatched_pass));
    assert!(!parse("", &[]).expect("it works").unmatched_pass);
    let both = "unmatched = \"pass\"\n[[rules]]\nid = \"default\"\nplans = [\"free\"]";
    let why = parse(both, &[]).expect_err("which of them?");
    assert!(why.contains("leaves nothing for the rule `default`"), "{why}");
    let why = parse("unmatched = \"deny\"", &[]).expect_err("no such choice");
    assert!(why.contains("`deny` is not a choice for `unmatched`"), "{why}");
    let why = parse("[[rules]]\nid = \"default\"\nmatch = { path = \"/a\" }\nplans = [\"free\"]", &[]);
    assert!(why.expect_err("default is for all").contains("all requests that no other rule matches"));
}

#[tokio::test]
async fn a_tenant_has_limits_of_its_own_by_file_and_by_admin_api() {
    let office = Office::open_with(
        "[plans.gold]\nlimits = [{ name = \"burst\", capacity = 10, refill = \"1/s\" }, { name = \"day\", capacity = 99, refill = \"1/s\" }]
         [[tenants]]\nid = \"acme\"\nplan = \"gold\"\nlimits = { burst = { capacity = 20, refill = \"2/s\" } }",
    )
    .await;
    assert_eq!(office.limit_of("tenant:acme").await, 20);
    office
        .get("/admin/v1/tenants/acme")
        .await
        .is(200)
        .says("/limits/burst/capacity", 20)
        .says("/limits/burst/refill", "2/s");
    let own = json!({"plan": "gold", "limits": {"burst": {"capacity": 30, "refill": "3/s"}, "day": {"capacity": 25, "refill": "1/s"}}});
    office.ask(Method::PUT, "/admin/v1/tenants/bolt", own).await.is(201).says("/limits/day/capacity", 25);
    assert_eq!(office.limit_of("tenant:bolt").await, 25, "the smaller of its own two");
    office.ask(Method::POST, "/admin/v1/tenants/bolt/keys", json!({})).await.is(201);
    assert_eq!(office.limit_of("tenant:bolt").await, 25, "a new key leaves its limits");
    let office = office.restart().await;
    assert_eq!(office.limit_of("tenant:bolt").await, 25);
    office.get("/admin/v1/buckets/tenant:bolt?plan=gold").await.is(200).says("/buckets/0/capacity", 30);
    let shown = office.get("/admin/v1/config").await.is(200).text;
    assert!(shown.contains("limits = { burst = { capacity = 30, refill = \"3/s\" }"), "{shown}");
    Config::parse(Path::new("shown.toml"), shown, [])
        .unwrap_or_else(|why| panic!("what is shown can be read: {why}"));
    let wrong = json!({"plan": "gold", "limits": {"month": {"capacity": 1, "refill": "1/s"}}});
    let refused = office.ask(Method::PUT, "/admin/v1/tenants/bolt", wrong).await;
    assert!(refused.status == 422 || refused.status == 400, "{refused:?}");
    assert!(
        refused.text.contains("plan `gold` has no limit called `month`: it has burst, day"),
        "{refused:?}"
    );
    assert_eq!(office.limit_of("tenant:bolt").await, 25, "what was refused changed nothing");
}
