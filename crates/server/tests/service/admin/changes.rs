//! The admin API: what operators change while the server runs.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use spile_server::{Config, Flags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{FILE, Office, Spile, TOKEN};

#[tokio::test]
async fn a_plan_that_is_put_takes_effect_at_once_and_survives_a_restart() {
    let office = Office::open().await;
    office
        .ask(Method::PUT, "/admin/v1/plans/gold", json!({"capacity": 50, "refill": "5/s"}))
        .await
        .is(201)
        .says("/name", "gold")
        .says("/source", "registry");
    office.ask(Method::PUT, "/admin/v1/tenants/acme", json!({"plan": "gold"})).await.is(200);
    assert_eq!(office.limit_of("tenant:acme").await, 50);

    let office = office.restart().await;
    assert_eq!(office.limit_of("tenant:acme").await, 50);
    office
        .get("/admin/v1/plans")
        .await
        .is(200)
        .says("/plans/0/name", "free")
        .says("/plans/0/source", "file")
        .says("/plans/3/name", "gold")
        .says("/plans/3/source", "registry");
}

#[tokio::test]
async fn a_quota_that_is_put_is_shown_as_it_was_and_survives_a_restart() {
    let office = Office::open().await;
    let month = json!({"name": "month", "debt": 40_000, "quota": 100_000, "per": "month",
                       "zone": "Europe/Berlin", "anchor": 31});
    let plan = json!({"limits": [{"name": "burst", "capacity": 10, "refill": "1/s", "debt": 0}, month]});
    office.ask(Method::PUT, "/admin/v1/plans/gold", plan.clone()).await.is(201);
    let week = json!({"quota": 7, "per": "week", "anchor": "Sunday"});
    office.ask(Method::PUT, "/admin/v1/plans/silver", week).await.is(201);
    let own = json!({"plan": "gold", "limits": {"month": {"quota": 5, "per": "day", "anchor": "6"}}});
    office.ask(Method::PUT, "/admin/v1/tenants/acme", own).await.is(200);
    let office = office.restart().await;
    let shown = office.get("/admin/v1/plans/gold").await.is(200).json();
    assert_eq!(shown["limits"], plan["limits"]);
    let silver = office.get("/admin/v1/plans/silver").await.is(200).json();
    assert_eq!((&silver["quota"], &silver["per"]), (&json!(7), &json!("week")), "{silver}");
    // What is shown can be put back.
    office.ask(Method::PUT, "/admin/v1/plans/silver", silver).await.is(200);
    let acme = office.get("/admin/v1/tenants/acme").await.is(200).json();
    assert_eq!(acme["limits"], json!({"month": {"quota": 5, "per": "day", "anchor": 6}}));
    assert_eq!(office.limit_of("tenant:acme").await, 5);
}

#[tokio::test]
async fn a_quota_of_money_is_shown_exactly_and_its_smallest_amount_is_a_millionth() {
    let office = Office::open().await;
    let money = json!({"unit": "usd", "quota": 250.5, "per": "month"});
    office.ask(Method::PUT, "/admin/v1/plans/money", money.clone()).await.is(201);
    let office = office.restart().await;
    let mut shown = office.get("/admin/v1/plans/money").await.is(200).json();
    for (name, value) in money.as_object().expect("an object") {
        assert_eq!(shown[name], *value);
    }
    shown.as_object_mut().expect("an object").remove("source");
    office.ask(Method::PUT, "/admin/v1/plans/money", shown).await.is(200);
    let question = |cost: f64| json!({"plans": ["money"], "identity": "user:1", "cost": cost});
    let decided = office.spile.check(question(0.003_175)).await.is(200);
    assert_eq!(decided.json()["remaining"].to_string(), "250.496825");
    office.spile.check(question(250.496_825)).await.is(200).says("/remaining", 0);
    office.spile.check(question(0.000_001)).await.is(429);
    let buckets = office.get("/admin/v1/buckets/user:1?plan=money").await.is(200).json();
    assert_eq!(buckets["buckets"][0]["capacity"].to_string(), "250.5", "{buckets}");
}

#[tokio::test]
async fn a_plan_that_is_changed_within_a_window_keeps_what_was_used() {
    let office = Office::open().await;
    let plan = "/admin/v1/plans/free";
    let quota = |tokens: u32| json!({"quota": tokens, "per": "year"});
    let left = async |cost: u32| {
        let question = json!({"ruleId": "default", "identity": "tenant:acme", "cost": cost});
        office.spile.check(question).await.json()["remaining"].clone()
    };
    assert_eq!(left(9).await, 1);
    office.ask(Method::PUT, plan, quota(10)).await.is(200);
    assert_eq!(left(8).await, 2, "what the rate held is no part of the quota in its place");
    office.ask(Method::PUT, plan, quota(100)).await.is(200);
    assert_eq!(left(0).await, 92, "eight are used, of more");
    office.ask(Method::PUT, plan, quota(5)).await.is(200);
    assert_eq!(left(0).await, 0, "eight are used, of fewer");
    office.ask(Method::PUT, plan, quota(10)).await.is(200);
    assert_eq!(left(0).await, 2, "as it was");
}

#[tokio::test]
async fn an_entry_is_made_once_under_the_name_that_it_brings_along() {
    let office = Office::open().await;
    let gold = json!({"name": "gold", "capacity": 50, "refill": "5/s"});
    office
        .ask(Method::POST, "/admin/v1/plans", gold.clone())
        .await
        .is(201)
        .says("/source", "registry")
        .carries("location", "/admin/v1/plans/gold");
    office.ask(Method::POST, "/admin/v1/plans", gold).await.is(409).says("/field", "name");
    let in_file = json!({"id": "acme", "plan": "gold"});
    office.ask(Method::POST, "/admin/v1/tenants", in_file).await.is(409).says("/field", "id");
    office.ask(Method::POST, "/admin/v1/tenants", json!({"plan": "gold"})).await.is(422).says("/field", "id");
    office
        .ask(Method::POST, "/admin/v1/tenants", json!({"id": "größe/1", "plan": "gold"}))
        .await
        .is(201)
        .carries("location", "/admin/v1/tenants/gr%C3%B6%C3%9Fe%2F1");
    office.get("/admin/v1/tenants/gr%C3%B6%C3%9Fe%2F1").await.is(200).says("/plan", "gold");
    let rule = json!({"id": "writes", "plans": ["nope"]});
    office.ask(Method::POST, "/admin/v1/rules", rule).await.is(422);
    assert_eq!(office.limit_of("tenant:acme").await, 10);
}

#[tokio::test]
async fn removing_an_entry_brings_back_what_the_file_says() {
    let office = Office::open().await;
    let plan = "/admin/v1/plans/free";
    office.ask(Method::PUT, plan, json!({"capacity": 3, "refill": "1/s"})).await.is(200);
    assert_eq!(office.limit_of("somebody").await, 3);
    office.ask(Method::DELETE, plan, Value::Null).await.is(204);
    assert_eq!(office.limit_of("somebody").await, 10);
    office.ask(Method::DELETE, plan, Value::Null).await.is(409);
    office.ask(Method::DELETE, "/admin/v1/plans/none", Value::Null).await.is(404);
}

#[tokio::test]
async fn of_two_writers_who_read_the_same_the_second_is_told() {
    let office = Office::open().await;
    let plan = "/admin/v1/plans/free";
    let read = office.get(plan).await.is(200);
    let tag = read.header("etag").expect("every entry has a tag").to_owned();
    let put = |capacity: u32| json!({"capacity": capacity, "refill": "1/s"});
    office.ask_if(Method::PUT, plan, put(20), &[("if-match", &tag)]).await.is(200);
    office.ask_if(Method::PUT, plan, put(30), &[("if-match", &tag)]).await.is(412);
    office.ask_if(Method::DELETE, plan, Value::Null, &[("if-match", &tag)]).await.is(412);
    office.ask_if(Method::PUT, plan, put(40), &[("if-none-match", "*")]).await.is(412);
    assert_eq!(office.limit_of("somebody").await, 20);
}

#[tokio::test]
async fn a_new_api_key_is_shown_once_and_works_at_once() {
    let office = Office::open().await;
    office.ask(Method::PUT, "/admin/v1/plans/gold", json!({"capacity": 50, "refill": "5/s"})).await.is(201);
    office.ask(Method::PUT, "/admin/v1/tenants/acme", json!({"plan": "gold"})).await.is(200);
    let made = office.ask(Method::POST, "/admin/v1/tenants/acme/keys", Value::Null).await.is(201).json();
    let api_key = made["apiKey"].as_str().expect("the key is shown");
    office.spile.get("/api/ping", &[("x-api-key", api_key)]).await.is(200).carries("x-ratelimit-limit", "50");
    office
        .spile
        .get("/api/ping", &[("x-api-key", "another")])
        .await
        .is(200)
        .carries("x-ratelimit-limit", "10");
    let shown = office.get("/admin/v1/tenants/acme").await.is(200).says("/apiKeyCount", 1);
    assert!(!shown.text.contains(api_key) && !shown.text.contains("sha256"), "{}", shown.text);
    office
        .ask(Method::PUT, "/admin/v1/tenants/acme", json!({"plan": "free"}))
        .await
        .is(200)
        .says("/apiKeyCount", 1);
}

#[tokio::test]
async fn buckets_of_a_key_are_looked_at_and_made_full_again() {
    let office = Office::open().await;
    office.spile.check(json!({"ruleId": "default", "identity": "user:1", "cost": 7})).await.is(200);
    office
        .get("/admin/v1/buckets/user:1")
        .await
        .is(200)
        .says("/buckets/1/limit", "free")
        .says("/buckets/1/tokens", 3)
        .says("/buckets/1/resetAfterMs", 7000);
    office.ask(Method::DELETE, "/admin/v1/buckets/user:1", Value::Null).await.is(204);
    office.get("/admin/v1/buckets/user:1?plan=free").await.is(200).says("/buckets/0/tokens", 10);
    office.get("/admin/v1/buckets/user:1?plan=nope").await.is(400).says("/field", "plan");
}

#[tokio::test]
async fn a_reload_takes_all_of_a_file_that_works_and_nothing_of_one_that_does_not() {
    let office = Office::open().await;
    let file = std::fs::read_to_string(office.file()).expect("the folder is ours");
    std::fs::write(office.file(), file.replace("capacity = 10", "capacity = 25"))
        .expect("the folder is ours");
    office.ask(Method::POST, "/admin/v1/config/reload", Value::Null).await.is(200).says("/result", "applied");
    assert_eq!(office.limit_of("somebody").await, 25);

    std::fs::write(office.file(), file.replace("capacity = 10", "capacity = -1"))
        .expect("the folder is ours");
    let refused = office.ask(Method::POST, "/admin/v1/config/reload", Value::Null).await.is(422);
    assert!(refused.text.contains("spile.toml:3"), "{}", refused.text);
    assert_eq!(office.limit_of("somebody").await, 25);
    let store = office.get("/admin/v1/store").await.is(200).says("/breaker", "closed").json();
    assert!(store["lastReloadRefused"].is_string(), "{store}");
    let metrics = office.spile.admin("/metrics").await.text;
    assert!(metrics.contains("ratelimit_config_reloads_total{result=\"refused\"}"), "{metrics}");
}

#[tokio::test]
async fn a_file_that_changes_is_read_again_by_itself() {
    let office = Office::open().await;
    let file = std::fs::read_to_string(office.file()).expect("the folder is ours");
    // Put in place in one step, as Kubernetes and careful editors do.
    let next = office.folder.path().join("next");
    std::fs::write(&next, file.replace("capacity = 10", "capacity = 33")).expect("the folder is ours");
    std::fs::rename(&next, office.file()).expect("the folder is ours");
    let patience = spile_testkit::wait::PATIENCE;
    let noticed = tokio::time::timeout(patience, async { while office.limit_of("somebody").await != 33 {} });
    noticed.await.expect("the server looks at its file");
}

#[tokio::test]
async fn no_request_fails_while_the_configuration_changes_a_hundred_times() {
    let office = Office::open().await;
    let done = std::cell::Cell::new(false);
    let callers = async {
        let mut seen = std::collections::BTreeSet::new();
        while !done.get() {
            let answer =
                office.spile.peek(json!({"ruleId": "default", "identity": "somebody"})).await.is(200);
            seen.insert(answer.json()["limit"].as_u64());
        }
        seen
    };
    let reloads = async {
        for change in 0..100 {
            let [from, to] = if change % 2 == 0 { [10, 11] } else { [11, 10] };
            let [from, to] = [from, to].map(|tokens| format!("capacity = {tokens}"));
            office.reload_with(&from, &to).await.is(200);
        }
        done.set(true);
    };
    let (seen, ()) = tokio::join!(callers, reloads);
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [Some(10), Some(11)],
        "each change was in force, and no other"
    );
}

#[tokio::test]
async fn what_only_a_restart_changes_is_named_by_the_reload() {
    let office = Office::open().await;
    let answer = office
        .reload_with(
            "[plans]",
            "[store]\nprefix = \"other\"\ntimeout = \"20ms\"\n[grpc]\ntimeout = \"10ms\"\nrate_limit_headers = false\n[resp]\nidle_timeout = \"1m\"\n[plans]",
        )
        .await;
    let waiting = answer.is(200).json()["needsRestart"].clone();
    let named = |name: &str| waiting.as_array().is_some_and(|names| names.iter().any(|known| known == name));
    assert!(named("store.prefix") && named("store.timeout") && !named("store.url"), "{waiting}");
    assert!(named("grpc.timeout") && named("resp.idle_timeout") && !named("listen.resp"), "{waiting}");
    assert!(named("grpc.rate_limit_headers"), "{waiting}");
}

#[tokio::test]
async fn flags_stand_above_the_file_after_a_reload_too() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("spile.toml"), FILE).expect("the folder is ours");
    let token = [("SPILE_ADMIN_TOKEN".to_owned(), TOKEN.to_owned())];
    let config = Config::load(&folder.path().join("spile.toml"), token).expect("the file works");
    let anywhere = "127.0.0.1:0".parse().ok();
    let flags = Flags { http: anywhere, admin: anywhere, ..Flags::default() };
    let office = Office { spile: Spile::start_with(config.under(flags)).await, folder };
    let answer = office.reload_with("capacity = 10", "capacity = 11").await.is(200);
    assert_eq!(answer.json()["needsRestart"], json!([]));
    let shown = office.get("/admin/v1/config").await.is(200).text;
    assert!(shown.contains("http = \"127.0.0.1:0\""), "{shown}");
}

/// The file that the admin token stands in.
struct TokenFile(tempfile::TempDir);

impl TokenFile {
    fn replace(&self, token: &str) {
        std::fs::write(self.0.path().join("admin.token"), token).expect("the folder is ours");
    }
}

async fn with_a_token_of_yesterday() -> (Spile, TokenFile) {
    let token = TokenFile(tempfile::tempdir().expect("a folder"));
    token.replace("the token of yesterday");
    let config = token.0.path().join("spile.toml");
    std::fs::write(&config, "[admin]\ntoken_file = \"admin.token\"\n").expect("the folder is ours");
    (Spile::start_with(Config::load(&config, []).expect("the file works")).await, token)
}

#[tokio::test]
async fn a_token_that_is_replaced_no_longer_opens_anything() {
    let (spile, token) = with_a_token_of_yesterday().await;
    let ask = async |method, path, token: &str| {
        let bearer = format!("Bearer {token}");
        spile.send_to(spile.admin, method, path, &[("authorization", &bearer)], "").await
    };
    token.replace("the token of today");
    ask(Method::POST, "/admin/v1/config/reload", "the token of yesterday").await.is(200);
    ask(Method::GET, "/admin/v1/plans", "the token of yesterday").await.is(401);
    ask(Method::GET, "/admin/v1/plans", "the token of today").await.is(200);
}

#[tokio::test]
async fn an_entry_is_put_though_a_file_that_it_has_nothing_to_do_with_is_gone() {
    let office = Office::open().await;
    let secret = office.folder.path().join("hook.secret");
    std::fs::write(&secret, "a secret of more than sixteen bytes").expect("the folder is ours");
    let hook = "[[webhooks]]\nurl = \"https://ops.example.com/\"\nsecret_file = \"hook.secret\"\n[[tenants]]";
    office.reload_with("[[tenants]]", hook).await.is(200);
    std::fs::remove_file(&secret).expect("the folder is ours");
    let gold = json!({"capacity": 50, "refill": "5/s"});
    office.ask(Method::PUT, "/admin/v1/plans/gold", gold).await.is(201);
    office.ask(Method::PUT, "/admin/v1/tenants/acme", json!({"plan": "gold"})).await.is(200);
    assert_eq!(office.limit_of("tenant:acme").await, 50);
    office.ask(Method::POST, "/admin/v1/config/reload", Value::Null).await.is(422);
}

#[tokio::test]
async fn a_stream_that_is_open_ends_with_the_token_that_opened_it() {
    let (spile, token) = with_a_token_of_yesterday().await;
    let mut page = TcpStream::connect(spile.admin).await.expect("it listens");
    let question = "GET /dashboard/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                    authorization: Bearer the token of yesterday\r\n\r\n";
    page.write_all(question.as_bytes()).await.expect("it reads");
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("data:") {
        assert_ne!(
            page.read_buf(&mut seen).await.expect("it writes"),
            0,
            "{}",
            String::from_utf8_lossy(&seen)
        );
    }
    token.replace("the token of today");
    let yesterday = [("authorization", "Bearer the token of yesterday")];
    spile.send_to(spile.admin, Method::POST, "/admin/v1/config/reload", &yesterday, "").await.is(200);
    let rest = tokio::time::timeout(Duration::from_secs(30), page.read_to_end(&mut seen)).await;
    rest.expect("the stream ends").expect("in good order");
}

#[tokio::test]
async fn a_permit_and_a_reservation_end_whatever_mode_their_rule_has_by_then() {
    const FILE: &str = "[plans.jobs]\nlimits = [\n  { name = \"atonce\", concurrency = 1, hold = \"30s\" },\n  \
                        { name = \"rate\", capacity = 10, refill = \"1/h\" },\n]\n\
                        [[rules]]\nid = \"jobs\"\nmatch = { path = \"/jobs\" }\nplans = [\"jobs\"]\nmode = \"enforce\"\n\
                        [[rules]]\nid = \"work\"\nmatch = { path = \"/work\" }\nplans = [\"pro\"]\nmode = \"enforce\"\n";
    let modes = ["mode = \"enforce\"", "mode = \"shadow\""];
    for (from, to) in [(modes[0], modes[1]), (modes[1], modes[0])] {
        let office = Office::open_with(&FILE.replace(modes[0], from)).await;
        let post = async |path, body: Value| office.spile.post(path, body.to_string()).await.is(200).json();
        let (jobs, work) =
            (json!({"ruleId": "jobs", "identity": "ann"}), json!({"ruleId": "work", "identity": "ann"}));
        let permit = post("/v1/acquire", jobs.clone()).await["permit"].clone();
        let mut reserved = work.clone();
        reserved["cost"] = 60.into();
        let id = post("/v1/reserve", reserved).await["id"].clone();
        office.reload_with(from, to).await.is(200);
        assert_eq!(post("/v1/settle", json!({"id": id, "cost": 10})).await["settled"], true, "{from}");
        if from == modes[0] {
            assert_eq!(post("/v1/renew", json!({"permit": permit})).await["renewed"], true);
            assert_eq!(post("/v1/release", json!({"permit": permit})).await["released"], true);
        } else {
            assert!(permit.is_null(), "no permit is taken in shadow mode");
        }
        office.reload_with(to, from).await.is(200);
        let mut asked = work;
        asked["cost"] = 90.into();
        let (checked, acquired) = (post("/v1/check", asked).await, post("/v1/acquire", jobs).await);
        if from == modes[0] {
            assert_eq!(
                (&checked["reason"], &acquired["reason"]),
                (&json!("ok"), &json!("ok")),
                "10 of 100 were used"
            );
        } else {
            let shadow = json!({"ruleId": "work", "allowed": true, "limitedBy": null, "retryAfterMs": 0});
            assert_eq!(
                (&checked["reason"], &checked["shadow"]),
                (&json!("unlimited"), &shadow),
                "10 of 100 were used"
            );
            assert_eq!(acquired["shadow"]["allowed"], true);
        }
    }
}
