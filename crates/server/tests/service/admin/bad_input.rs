//! Whatever an operator gets wrong is a 4xx problem that names the field and the bound, and changes nothing.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Office, Spile, TOKEN};

/// What is wrong, where it is put, the body, the status, the field, and words that name the bound.
const CASES: &str = r#"
no body                            | plans/gold  |                                            | 400 | body       | EOF
half an object                     | plans/gold  | {"capacity": 5                             | 400 | body       | EOF
two objects                        | plans/gold  | {} {}                                      | 400 | body       | more than one
a list for an object               | plans/gold  | [1]                                        | 400 | body       | an object
text that is no JSON               | plans/gold  | capacity: 5                                | 400 | body       | expected value
an unknown field                   | plans/gold  | {"refill": "1/s", "burst": 3}              | 400 | burst      | it takes name, capacity
a field as the file has it         | rules/x     | {"plans": ["free"], "on_failure": "deny"}  | 400 | on_failure | did you mean `onFailure`?
a field given twice                | plans/gold  | {"refill": "1/s", "refill": "2/s"}         | 400 | body       | duplicate field `refill`
no capacity to speak of            | plans/gold  | {"capacity": 0, "refill": "1/s"}           | 422 | capacity   | 1 to 1000000000
a capacity above the bound         | plans/gold  | {"capacity": 1000000001, "refill": "1/s"}  | 422 | capacity   | 1 to 1000000000
a capacity above 2^64              | plans/gold  | {"capacity": 36893488147419103232}         | 400 | capacity   | 1 to 1000000000
a negative capacity                | plans/gold  | {"capacity": -1, "refill": "1/s"}          | 400 | capacity   | 1 to 1000000000
a capacity of seven decimals       | plans/gold  | {"capacity": 1.0000001, "refill": "1/s"}   | 400 | capacity   | at most six decimals
a capacity below one request       | plans/gold  | {"capacity": 0.999999, "refill": "1/s"}    | 422 | capacity   | 1 to 1000000000
a capacity below the least amount  | plans/gold  | {"capacity": 0, "refill": "1/s", "unit": "usd"} | 422 | capacity | 0.000001 to 1000000000
text for a capacity                | plans/gold  | {"capacity": "5", "refill": "1/s"}         | 400 | capacity   | 1 to 1000000000
a refill in words                  | plans/gold  | {"refill": "soon"}                         | 422 | refill     | `1/s`
a number for a refill              | plans/gold  | {"refill": 5}                              | 400 | refill     | `1/s`
a refill that takes decades        | plans/gold  | {"capacity": 1000000000, "refill": "1/h"}  | 422 | refill     | ten years
no refill                          | plans/gold  | {"capacity": 5}                            | 422 | refill     | `refill
nothing at all                     | plans/gold  | {}                                         | 422 | refill     | `refill
a rate and a quota                 | plans/gold  | {"refill": "1/s", "quota": 5, "per": "day"} | 422 | refill    | a rate (`capacity`, `refill`, `lease`) or a quota
a quota with a lease               | plans/gold  | {"quota": 5, "per": "day", "lease": "1s"}  | 422 | lease      | a quota has no `lease`
a quota without a period           | plans/gold  | {"quota": 5}                               | 422 | per        | add `per
a period without a quota           | plans/gold  | {"per": "day"}                             | 422 | quota      | add `quota
a zone alone                       | plans/gold  | {"zone": "UTC"}                            | 422 | quota      | add `quota
a quota of none                    | plans/gold  | {"quota": 0, "per": "day"}                 | 422 | quota      | a quota of 0 is out of bounds; 1 to 1000000000
a quota above the bound            | plans/gold  | {"quota": 1000000001, "per": "day"}        | 422 | quota      | 1 to 1000000000
a quota of seven decimals          | plans/gold  | {"quota": 5.0000001, "per": "day"}         | 400 | quota      | at most six decimals
a unit that there is not           | plans/gold  | {"refill": "1/s", "unit": "USD"}           | 422 | unit       | as in `usd`
a number for a unit                | plans/gold  | {"refill": "1/s", "unit": 5}               | 400 | unit       | text
a concurrency with a unit          | plans/gold  | {"concurrency": 5, "unit": "tokens"}       | 422 | unit       | a concurrency has no `unit`
text for a quota                   | plans/gold  | {"quota": "5", "per": "day"}               | 400 | quota      | 1 to 1000000000
a period that there is not         | plans/gold  | {"quota": 5, "per": "fortnight"}           | 422 | per        | `month` or `year`
a number for a period              | plans/gold  | {"quota": 5, "per": 30}                    | 400 | per        | `month` or `year`
a zone that there is not           | plans/gold  | {"quota": 5, "per": "day", "zone": "Europe/Berln"} | 422 | zone | did you mean "Europe/Berlin"?
a number for a zone                | plans/gold  | {"quota": 5, "per": "day", "zone": 2}      | 400 | zone       | Europe/Berlin
a day that no month has            | plans/gold  | {"quota": 5, "per": "month", "anchor": 32} | 422 | anchor     | a month has days 1 to 31
an anchor of another period        | plans/gold  | {"quota": 5, "per": "week", "anchor": 15}  | 422 | anchor     | "mon" to "sun"
an anchor of no period             | plans/gold  | {"quota": 5, "per": "hour", "anchor": 15}  | 422 | anchor     | an hour has no anchor
a fraction for an anchor           | plans/gold  | {"quota": 5, "per": "month", "anchor": 1.5} | 400 | anchor    | a day of the month
a negative debt                    | plans/gold  | {"refill": "1/s", "debt": -1}              | 400 | debt       | 0 to 1000000000
a debt of seven decimals           | plans/gold  | {"refill": "1/s", "debt": 0.0000001}       | 400 | debt       | at most six decimals
a debt above the bound             | plans/gold  | {"refill": "1/s", "debt": 1000000001}      | 422 | debt       | 0 to 1000000000
a debt that takes decades          | plans/gold  | {"refill": "1/day", "debt": 10000}         | 422 | debt       | ten years
a quota's debt above the bound     | plans/gold  | {"quota": 5, "per": "day", "debt": 1000000001} | 422 | debt   | 0 to 1000000000
a bad quota in a chain             | plans/gold  | {"limits": [{"name": "a", "quota": 5}]}    | 422 | limits[0].per | add `per
no limit in the chain              | plans/gold  | {"limits": []}                             | 422 | name       | 1 to 32
two limits of one name             | plans/gold  | {"limits": [{"name": "a", "refill": "1/s"}, {"name": "a", "refill": "1/s"}]} | 422 | name | different name
a limit without a name             | plans/gold  | {"limits": [{"refill": "1/s"}]}            | 422 | limits[0].name | `name
a bad limit in the chain           | plans/gold  | {"limits": [{"name": "a", "refill": "1/s"}, {"name": "b", "refill": "x"}]} | 422 | limits[1].refill | `1/s`
a text for a limit                 | plans/gold  | {"limits": ["1/s"]}                        | 400 | limits[0]  | an object
a list for a limit                 | plans/gold  | {"limits": [["a", 5, "1/s"]]}              | 400 | limits[0]  | an object
a list of members                  | plans/gold  | ["gold", 5, "1/s"]                         | 400 | body       | an object
a chain and a limit                | plans/gold  | {"refill": "1/s", "limits": []}            | 422 | name       | or `limits`
another name than in the path      | plans/gold  | {"name": "silver", "refill": "1/s"}        | 422 | name       | in the path
a plan with the name of a word     | plans/tenant | {"refill": "1/s"}                         | 422 | name       | no plan can be called
a plan with a space in its name    | plans/a%20b | {"refill": "1/s"}                          | 422 | name       | 1 to 64 letters
a plan with a slash in its name    | plans/a%2Fb | {"refill": "1/s"}                          | 422 | name       | 1 to 64 letters
a plan with a newline in its name  | plans/a%0Ab | {"refill": "1/s"}                          | 422 | name       | 1 to 64 letters
a name that is not UTF-8           | plans/%FF   | {"refill": "1/s"}                          | 400 | path       | UTF-8
a plan that there is not           | rules/x     | {"plans": ["nope"]}                        | 422 | plans[0]   | there are free
no plans                           | rules/x     | {}                                         | 422 | plans      | add `plans
a list of no plans                 | rules/x     | {"plans": []}                              | 422 | plans      | at least one
a number for plans                 | rules/x     | {"plans": 5}                               | 400 | plans      | a list of plan names
somebody who cannot be found       | rules/x     | {"plans": ["free"], "key": ["shoe-size"]}  | 422 | key[0]     | header:NAME
a text for a list of keys          | rules/x     | {"plans": ["free"], "key": "ip"}           | 400 | key        | a list
a cost that can never pass         | rules/x     | {"plans": ["free"], "cost": 11}            | 422 | cost       | at most 10
a negative cost                    | rules/x     | {"plans": ["free"], "cost": -1}            | 400 | cost       | 0 to 1000000000
a cost of seven decimals           | rules/x     | {"plans": ["free"], "cost": 0.0000001}     | 400 | cost       | at most six decimals
a cost above every capacity        | rules/x     | {"plans": ["free"], "cost": 1000000001}    | 422 | cost       | 1000000000
a mode that there is not           | rules/x     | {"plans": ["free"], "mode": "watch"}       | 400 | mode       | `enforce`, `shadow` or `any`
a late rule for HTTP requests      | rules/x     | {"plans": ["free"], "late": true}          | 422 | late       | `late` is for descriptors
a policy that there is not         | rules/x     | {"plans": ["free"], "onFailure": "panic"}  | 400 | onFailure  | `allow`, `deny` or `local`
a rule that charges itself         | rules/x     | {"plans": ["free"], "also": ["x"]}         | 422 | also[0]    | a rule cannot name itself here
a rule that there is not           | rules/x     | {"plans": ["free"], "also": ["nobody"]}    | 422 | also[0]    | another rule
a path without a slash             | rules/x     | {"plans": ["free"], "match": {"path": "login"}} | 422 | match.path | starts with `/`
a method with a space              | rules/x     | {"plans": ["free"], "match": {"methods": ["GE T"]}} | 422 | match.methods[0] | `POST`
an unknown part of a match         | rules/x     | {"plans": ["free"], "match": {"host": "a"}} | 400 | match.host | did you mean `hosts`?
a list for a match                 | rules/x     | {"plans": ["free"], "match": ["/"]}        | 400 | match      | an object
a tenant without a plan            | tenants/x   | {}                                         | 422 | plan       | add `plan
a plan that there is not           | tenants/x   | {"plan": "nope"}                           | 422 | plan       | there are free
a key in place of its hash         | tenants/x   | {"plan": "free", "apiKeys": ["hunter2"]}   | 422 | apiKeys[0] | sha256
a hash that is too short           | tenants/x   | {"plan": "free", "apiKeys": ["sha256:00"]} | 422 | apiKeys[0] | 64 hexadecimal digits
text for a list of hashes          | tenants/x   | {"plan": "free", "apiKeys": "x"}           | 400 | apiKeys    | 64 hexadecimal digits
a tenant with a control character  | tenants/a%C2%85b | {"plan": "free"}                      | 422 | id         | U+0085
"#;

#[tokio::test]
async fn each_mistake_is_named_with_its_bound_and_changes_nothing() {
    let office = Office::open().await;
    let before = office.everything().await;
    for case in CASES.lines().filter(|line| !line.is_empty()) {
        let [what, path, body, status, field, bound] =
            case.split('|').map(str::trim).collect::<Vec<_>>().try_into().expect("a case has six parts");
        let answer = office.send(Method::PUT, &format!("/admin/v1/{path}"), &[], body).await;
        assert_is_problem(what, &answer, status.parse().expect("a status"), field, bound);
        assert!(!answer.text.contains("hunter2"), "{what}: {}", answer.text);
    }
    assert_eq!(office.everything().await, before);
}

#[tokio::test]
async fn all_mistakes_of_a_body_are_told_at_once() {
    let office = Office::open().await;
    let body =
        json!({"match": {"pathh": "/", "subset": "yes"}, "plans": 5, "key": ["ip", 1, "path", 2], "cots": 1});
    let answer = office.ask(Method::PUT, "/admin/v1/rules/x", body).await.is(400);
    let errors: Vec<String> =
        serde_json::from_value(answer.json()["errors"].clone()).expect("a list of texts");
    for place in ["match.pathh: ", "match.subset: ", "plans: ", "key[1]: ", "key[3]: ", "cots: "] {
        assert!(errors.iter().any(|error| error.starts_with(place)), "{place} in {errors:#?}");
    }
    assert_eq!(errors.len(), 6, "{errors:#?}");
    let meant = |word: &str| errors.iter().any(|error| error.contains(&format!("did you mean `{word}`?")));
    assert!(meant("path") && meant("cost"), "{errors:#?}");
}

#[tokio::test]
async fn documents_that_are_too_large_deep_or_long_are_refused_with_their_bound() {
    let office = Office::open().await;
    let before = office.everything().await;
    let large = json!({"plan": "x".repeat(70_000)}).to_string();
    let deep = format!(r#"{{"limits": {}"#, "[".repeat(10_000));
    let deep_and_unknown = format!(r#"{{"x": {}"#, "[".repeat(10_000));
    let limit = |n| json!({"name": format!("l{n}"), "capacity": 1, "refill": "1/s"});
    let long = json!({"limits": (0..33).map(limit).collect::<Vec<_>>()}).to_string();
    for (what, path, body, status, field, bound) in [
        ("70,000 bytes", "tenants/x", large, 413, "body", "65536 bytes"),
        ("10,000 lists within each other", "plans/gold", deep, 400, "body", "recursion limit"),
        ("the same where nothing is known", "plans/gold", deep_and_unknown, 400, "body", "recursion limit"),
        ("33 limits", "plans/gold", long, 422, "name", "1 to 32"),
    ] {
        let answer = office.send(Method::PUT, &format!("/admin/v1/{path}"), &[], body).await;
        assert_is_problem(what, &answer, status, field, bound);
    }
    assert_eq!(office.everything().await, before);
}

#[tokio::test]
async fn names_of_ten_thousand_bytes_are_refused_with_their_bound() {
    let office = Office::open().await;
    let before = office.everything().await;
    let long = "x".repeat(10_000);
    for (kind, body, bound) in [
        ("plans", json!({"refill": "1/s"}), "1 to 64"),
        ("rules", json!({"plans": ["free"]}), "1 to 64"),
        ("tenants", json!({"plan": "free"}), "1 to 1024"),
    ] {
        let path = format!("/admin/v1/{kind}/{long}");
        let answer = office.ask(Method::PUT, &path, body).await.is(422);
        assert!(answer.text.contains(bound) && answer.text.len() < 30_000, "{}", answer.text);
        office.get(&path).await.is(404).says("/field", "path");
        office.ask(Method::DELETE, &path, Value::Null).await.is(404);
    }
    for method in [Method::GET, Method::DELETE] {
        let answer = office.ask(method, &format!("/admin/v1/buckets/{long}"), Value::Null).await;
        assert_is_problem("a long key", &answer, 400, "key", "1 to 1024");
    }
    assert_eq!(office.everything().await, before);
}

#[tokio::test]
async fn bad_keys_and_queries_of_buckets_are_named() {
    let office = Office::open().await;
    for (path, field, bound) in [
        ("a%00b", "key", "U+0000"),
        ("a%0Ab", "key", "U+000A"),
        ("a%C2%85b", "key", "U+0085"),
        ("%FF%FE", "path", "UTF-8"),
        ("a?plan=nope", "plan", "no plan is called"),
        ("a?plans=free", "query", "unknown field `plans`"),
        ("a?plan=free&plan=free", "query", "duplicate field `plan`"),
    ] {
        for method in [Method::GET, Method::DELETE] {
            let answer = office.ask(method, &format!("/admin/v1/buckets/{path}"), Value::Null).await;
            assert_is_problem(path, &answer, 400, field, bound);
        }
    }
    // A slash in a key is part of the key.
    office.get("/admin/v1/buckets/a%2Fb").await.is(200).says("/key", "a/b");
    office.get("/admin/v1/buckets/").await.is(404);
}

#[tokio::test]
async fn what_is_no_document_at_all_gets_the_status_that_says_so() {
    let office = Office::open().await;
    let body = json!({"refill": "1/s"}).to_string();
    for content_type in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        let answer =
            office.send_as(content_type, Method::PUT, "/admin/v1/plans/gold", &[], body.clone()).await;
        assert_is_problem("another type", &answer, 415, "Content-Type", "application/json");
    }
    office
        .ask(Method::PATCH, "/admin/v1/plans/free", json!({}))
        .await
        .is(405)
        .carries("allow", "GET,HEAD,PUT,DELETE")
        .carries("content-type", "application/problem+json");
    office.ask(Method::PUT, "/admin/v1/shoes/x", json!({})).await.is(404).says("/status", 404);
    office.get("/admin/v1/plans/gold").await.is(404).says("/field", "path");
}

#[tokio::test]
async fn nobody_comes_in_without_the_token() {
    let office = Office::open().await;
    let admin = office.spile.admin;
    let long = format!("Bearer {}", "x".repeat(10_000));
    for bad in [
        None,
        Some("Bearer wrong"),
        Some("Bearer "),
        Some("Bearer"),
        Some("Bearer a token that nobody guesse"),
        Some("Bearer a token that nobody guessess"),
        Some("Bearer \u{e9}\u{fffd}"),
        Some(&long),
        Some(TOKEN),
        Some("Basic a token that nobody guesses"),
    ] {
        let headers: Vec<_> = bad.map(|value| ("authorization", value)).into_iter().collect();
        for path in ["/admin/v1/plans", "/admin/v1/config", "/admin/v1/buckets/a", "/admin/v1/tenants/acme"] {
            let answer = office.spile.send_to(admin, Method::GET, path, &headers, "").await;
            let answer = answer.carries("www-authenticate", "Bearer");
            assert_is_problem(&format!("{bad:?}"), &answer, 401, "Authorization", "Bearer");
        }
    }
    let bearer = format!("Bearer {TOKEN}");
    let twice = [("authorization", bearer.as_str()), ("authorization", "Bearer wrong")];
    office.spile.send_to(admin, Method::GET, "/admin/v1/plans", &twice, "").await.is(401);
    let shouted = format!("BEARER {TOKEN}");
    office
        .spile
        .send_to(admin, Method::GET, "/admin/v1/plans", &[("authorization", &shouted)], "")
        .await
        .is(200);
    let unguarded = Spile::start().await;
    unguarded.admin("/admin/v1/plans").await.is(403).says("/status", 403);
}

#[tokio::test]
async fn conditions_that_cannot_be_read_are_refused() {
    let office = Office::open().await;
    let (path, body) = ("/admin/v1/plans/free", json!({"capacity": 3, "refill": "1/s"}));
    for (headers, field) in [
        (&[("if-match", "no quotes")][..], "If-Match"),
        (&[("if-none-match", "\"0123456789abcdef\"")][..], "If-None-Match"),
    ] {
        let answer = office.ask_if(Method::PUT, path, body.clone(), headers).await;
        assert_is_problem(field, &answer, 400, field, "");
    }
    assert_eq!(office.limit_of("somebody").await, 10);
    let both = [("if-match", "*"), ("if-none-match", "*")];
    office.ask_if(Method::PUT, path, body.clone(), &both).await.is(412);
    office.ask_if(Method::PUT, "/admin/v1/plans/gold", body.clone(), &[("if-match", "*")]).await.is(412);
    office.ask_if(Method::PUT, path, body, &[("if-match", "*")]).await.is(200);
}

#[tokio::test]
async fn what_others_use_cannot_be_removed_and_they_are_named() {
    let office = Office::open().await;
    office.ask(Method::PUT, "/admin/v1/plans/gold", json!({"refill": "5/s"})).await.is(201);
    office.ask(Method::PUT, "/admin/v1/tenants/acme", json!({"plan": "gold"})).await.is(200);
    let answer = office.ask(Method::DELETE, "/admin/v1/plans/gold", Value::Null).await.is(409);
    assert!(answer.text.contains("tenants/acme.plan: no plan is called `gold`"), "{}", answer.text);
    assert_eq!(office.limit_of("tenant:acme").await, 5);
}

#[tokio::test]
async fn keys_that_are_made_at_the_same_time_are_all_kept() {
    let office = Office::open().await;
    let make = || office.ask(Method::POST, "/admin/v1/tenants/acme/keys", Value::Null);
    let put = || office.ask(Method::PUT, "/admin/v1/tenants/acme", json!({"plan": "free"}));
    let answers = tokio::join!(make(), put(), make(), put(), make(), put(), make(), make());
    for answer in [answers.0, answers.2, answers.4, answers.6, answers.7] {
        let api_key = answer.is(201).json()["apiKey"].as_str().expect("the key is shown").to_owned();
        assert_eq!(office.tenant_of(&api_key).await, "tenant:acme");
    }
    office.get("/admin/v1/tenants/acme").await.is(200).says("/apiKeyCount", 5);
}

#[tokio::test]
async fn a_tenant_can_be_given_a_hundred_keys_and_no_more() {
    let office = Office::open().await;
    for _ in 0..100 {
        office.ask(Method::POST, "/admin/v1/tenants/acme/keys", Value::Null).await.is(201);
    }
    let answer = office.ask(Method::POST, "/admin/v1/tenants/acme/keys", Value::Null).await;
    assert_is_problem("one more", &answer, 409, "apiKeys", "100");
    office.ask(Method::POST, "/admin/v1/tenants/nobody/keys", Value::Null).await.is(404);
}

#[tokio::test]
async fn what_was_read_can_be_sent_back() {
    let office = Office::open().await;
    let chain =
        json!({"limits": [{"name": "a", "refill": "1/s"}, {"name": "b", "capacity": 9, "refill": "2/min"}]});
    office.ask(Method::PUT, "/admin/v1/plans/chain", chain).await.is(201);
    let rule = json!({"match": {"path": "/x/*", "methods": ["POST"]}, "plans": ["chain", "free"], "onFailure": "deny"});
    office.ask(Method::PUT, "/admin/v1/rules/x", rule).await.is(201);
    for path in ["plans/free", "plans/chain", "rules/default", "rules/x", "tenants/acme"] {
        let path = format!("/admin/v1/{path}");
        let mut read = office.get(&path).await.is(200).json();
        let sent = office.ask(Method::PUT, &path, read.clone()).await.is(200).json();
        read["source"] = json!("registry");
        assert_eq!(sent, read, "{path}");
    }
}

#[track_caller]
fn assert_is_problem(what: &str, answer: &Answer, status: u16, field: &str, bound: &str) {
    assert_eq!(answer.status.as_u16(), status, "{what}: {answer:#?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}: {answer:#?}");
    let problem = answer.json();
    assert_eq!(problem["status"], status, "{what}: {problem}");
    assert_eq!(problem["field"], field, "{what}: {problem}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with(field) && detail.contains(bound), "{what}: {detail}");
}
