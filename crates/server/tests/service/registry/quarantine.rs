//! Entries of the registry that a new file does not go together with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use spile_testkit::redis::RedisServer;

use crate::support::{Office, Process};

const GOLD: &str = "gold = { capacity = 50, refill = \"5/s\" }\n";
const FILE: &str = r#"
[plans]
gold = { capacity = 50, refill = "5/s" }
[[rules]]
id = "default"
plans = "tenant"
anonymous_plan = "free"
"#;

/// A server whose registry has a plan, a rule and two tenants, of which the rule and one tenant need the file's gold.
/// Also the API key of that tenant.
async fn registered(file: &str) -> (Office, String) {
    let office = Office::open_with(file).await;
    let put = async |path: &str, document| {
        office.ask(Method::PUT, &format!("/admin/v1/{path}"), document).await.is(201);
    };
    put("plans/silver", json!({"capacity": 20, "refill": "2/s"})).await;
    put("rules/login", json!({"match": {"path": "/login"}, "key": ["ip"], "plans": ["gold"]})).await;
    put("tenants/beta", json!({"plan": "gold"})).await;
    put("tenants/gamma", json!({"plan": "silver"})).await;
    let key = office.ask(Method::POST, "/admin/v1/tenants/beta/keys", Value::Null).await.is(201).json();
    let key = key["apiKey"].as_str().expect("the key is shown").to_owned();
    (office, key)
}

/// The same, started again with a file that lacks the plan.
async fn without_gold(file: &str) -> (Office, String) {
    let (office, key) = registered(file).await;
    rewrite(&office, GOLD, "");
    (office.restart().await, key)
}

fn rewrite(office: &Office, from: &str, to: &str) {
    let file = fs::read_to_string(office.file()).expect("the folder is ours");
    assert!(file.contains(from), "{from} in {file}");
    fs::write(office.file(), file.replace(from, to)).expect("the folder is ours");
}

async fn quarantined(office: &Office) -> Vec<String> {
    let store = office.get("/admin/v1/store").await.is(200).json();
    let list = store["registry"]["quarantined"].as_array().expect("a list").clone();
    assert_eq!(store["registry"]["quarantinedCount"], list.len());
    let name =
        |entry: &Value| format!("{}/{}", entry["kind"].as_str().unwrap(), entry["name"].as_str().unwrap());
    list.iter().map(name).collect()
}

#[tokio::test]
async fn entries_on_a_plan_that_the_new_file_lacks_are_quarantined_and_the_rest_is_in_force() {
    let (office, _) = without_gold(FILE).await;
    assert_eq!(office.limit_of("tenant:gamma").await, 20);
    assert_eq!(office.limit_of("tenant:beta").await, 10, "a stranger's plan");
    assert_eq!(quarantined(&office).await, ["rules/login", "tenants/beta"]);
    let missing = office.get("/admin/v1/tenants/beta").await.is(404);
    assert!(missing.text.contains("quarantine") && missing.text.contains("no plan is called `gold`"));
    let ready = office.spile.admin("/readyz").await.is(200).text;
    assert!(ready.contains("registry: 2 entries are in quarantine (rules 1, tenants 1)"), "{ready}");
    assert!(!ready.contains("beta"), "no token is asked for here: {ready}");
    let shown = office.get("/dashboard/house").await.is(200);
    shown.says("/warning", "2 entries are in quarantine (rules 1, tenants 1)");
    let metrics = office.spile.admin("/metrics").await.text;
    for series in ["{kind=\"rules\"} 1", "{kind=\"tenants\"} 1", "{kind=\"plans\"} 0"] {
        assert!(metrics.contains(&format!("spile_registry_quarantined{series}\n")), "{metrics}");
    }
}

#[tokio::test]
async fn entries_come_back_by_themselves_with_a_file_that_they_go_together_with() {
    let (office, _) = without_gold(FILE).await;
    office.reload_with("[plans]\n", &format!("[plans]\n{GOLD}")).await.is(200);
    assert_eq!(office.limit_of("tenant:beta").await, 50);
    assert_eq!(quarantined(&office).await, [""; 0]);
    assert_eq!(office.spile.admin("/readyz").await.is(200).text, "ready\n");
}

#[tokio::test]
async fn entries_come_back_by_themselves_with_a_change_and_others_can_be_changed_meanwhile() {
    let (office, key) = without_gold(FILE).await;
    let plan = json!({"capacity": 70, "refill": "7/s"});
    office.ask(Method::PUT, "/admin/v1/plans/other", plan.clone()).await.is(201);
    office.ask(Method::PUT, "/admin/v1/tenants/gamma", json!({"plan": "other"})).await.is(200);
    assert_eq!(office.limit_of("tenant:gamma").await, 70);
    assert_eq!(quarantined(&office).await, ["rules/login", "tenants/beta"]);
    office.ask(Method::PUT, "/admin/v1/plans/gold", plan).await.is(201);
    assert_eq!(quarantined(&office).await, [""; 0]);
    assert_eq!(office.limit_of("tenant:beta").await, 70);
    let ping = office.spile.get("/api/ping", &[("x-api-key", &key)]).await.is(200);
    assert_eq!(ping.header("x-ratelimit-limit"), Some("70"));
}

#[tokio::test]
async fn a_tenant_in_quarantine_is_put_right_or_removed_and_keeps_its_keys_until_then() {
    let (office, key) = without_gold(FILE).await;
    let path = "/admin/v1/tenants/beta";
    let refused = office.ask(Method::POST, &format!("{path}/keys"), Value::Null).await.is(409);
    assert!(refused.text.contains("quarantine"), "{}", refused.text);
    let named = json!({"id": "beta", "plan": "pro"});
    office.ask(Method::POST, "/admin/v1/tenants", named).await.is(409);
    office.ask_if(Method::PUT, path, json!({"plan": "pro"}), &[("if-none-match", "*")]).await.is(412);
    office.ask(Method::PUT, path, json!({"plan": "nope"})).await.is(422);
    office.ask(Method::PUT, path, json!({"plan": "pro"})).await.is(201).says("/apiKeyCount", 1);
    let ping = office.spile.get("/api/ping", &[("x-api-key", &key)]).await.is(200);
    assert_eq!(ping.header("x-ratelimit-limit"), Some("100"));
    office.ask(Method::DELETE, "/admin/v1/rules/login", Value::Null).await.is(204);
    assert_eq!(quarantined(&office).await, [""; 0]);
    let office = office.restart().await;
    assert_eq!(office.limit_of("tenant:beta").await, 100);
}

#[tokio::test]
async fn a_reload_that_would_quarantine_what_is_in_force_is_refused() {
    let (office, _) = registered(FILE).await;
    let refused = office.reload_with(GOLD, "").await.is(422);
    assert!(
        refused.text.contains("tenants/beta") && refused.text.contains("rules/login"),
        "{}",
        refused.text
    );
    assert_eq!(office.limit_of("tenant:beta").await, 50);
    assert_eq!(quarantined(&office).await, [""; 0]);
}

#[tokio::test]
async fn a_key_that_was_taken_from_a_tenant_does_not_work_again_because_its_entry_is_quarantined() {
    let hash = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let file = format!("{FILE}[[tenants]]\nid = \"acme\"\nplan = \"pro\"\napi_keys = [\"{hash}\"]\n");
    let office = Office::open_with(&file).await;
    let limit = async |office: &Office| {
        let ping = office.spile.get("/api/ping", &[("x-api-key", "test")]).await.is(200);
        ping.header("x-ratelimit-limit").map(str::to_owned)
    };
    assert_eq!(limit(&office).await.as_deref(), Some("100"));
    let without_keys = json!({"plan": "gold", "apiKeys": []});
    office.ask(Method::PUT, "/admin/v1/tenants/acme", without_keys).await.is(200);
    rewrite(&office, GOLD, "");
    let office = office.restart().await;
    assert_eq!(quarantined(&office).await, ["tenants/acme"]);
    assert_eq!(limit(&office).await.as_deref(), Some("10"), "a stranger");
    office.get("/admin/v1/tenants/acme").await.is(404);
}

#[tokio::test]
async fn the_gateway_refuses_the_key_of_a_tenant_in_quarantine_also_if_there_is_no_other() {
    let file = format!(
        "{FILE}[listen]\ngateway = \"127.0.0.1:0\"\n[[routes]]\nname = \"all\"\npath = \"/\"\n\
         upstream = \"http://127.0.0.1:9\"\n"
    );
    let office = Office::open_with(&file).await;
    office.ask(Method::PUT, "/admin/v1/tenants/beta", json!({"plan": "gold"})).await.is(201);
    let key = office.ask(Method::POST, "/admin/v1/tenants/beta/keys", Value::Null).await.is(201).json();
    let key = key["apiKey"].as_str().expect("the key is shown");
    rewrite(&office, GOLD, "");
    let office = office.restart().await;
    let gateway = office.spile.gateway.expect("the file has one");
    office.spile.send_to(gateway, Method::GET, "/", &[("x-api-key", key)], "").await.is(401);
}

#[tokio::test]
async fn an_entry_that_the_new_file_cannot_be_used_with_gives_way_to_the_file() {
    let file = format!("{FILE}[[rules]]\nid = \"export\"\nkey = [\"ip\"]\nplans = [\"gold\"]\ncost = 20\n");
    let (office, _) = registered(&file).await;
    office.ask(Method::PUT, "/admin/v1/plans/gold", json!({"capacity": 30, "refill": "3/s"})).await.is(200);
    rewrite(&office, "cost = 20", "cost = 40");
    let office = office.restart().await;
    assert_eq!(quarantined(&office).await, ["plans/gold"]);
    assert_eq!(office.limit_of("tenant:beta").await, 50, "what the file says");
    office.get("/admin/v1/plans/gold").await.is(200).says("/source", "file");
    assert_eq!(office.limit_of("tenant:gamma").await, 20);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the folder's name is text")
}

fn said(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_checked_together_with_a_registry_file_also_while_a_server_uses_it() {
    let (office, key) = registered(FILE).await;
    let (file, registry) = (office.file(), office.folder.path().join("registry"));
    let check = || Process::run(&["config", "check", text(&file), "--registry", text(&registry)]);
    let whole = check();
    assert_eq!(whole.status.code(), Some(0), "{}", said(&whole));
    assert!(said(&whole).contains("4 entries of the registry"), "{}", said(&whole));
    rewrite(&office, GOLD, "");
    let wrong = check();
    assert_eq!(wrong.status.code(), Some(1), "{}", said(&wrong));
    let lines = said(&wrong);
    assert!(lines.contains("quarantine: rules/login: ") && !lines.contains("tenants/gamma"), "{lines}");
    assert!(lines.contains("quarantine: tenants/beta: plan: no plan is called `gold`"), "{lines}");
    assert!(!lines.contains(&key));
    let missing = Process::run(&["config", "check", text(&file), "--registry", "/nowhere/registry"]);
    assert_eq!(missing.status.code(), Some(2), "{}", said(&missing));
}

#[test]
fn a_file_is_checked_together_with_a_registry_in_redis() {
    let (redis, folder) = (RedisServer::start(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("spile.toml");
    fs::write(&file, "").expect("the folder is ours");
    let (entries, order) = ("spile:{:registry}:entries", "spile:{:registry}:order");
    for (version, name, document) in
        [("1", "tenants/acme", r#"{"plan":"gold"}"#), ("2", "tenants/beta", r#"{"plan":"pro"}"#)]
    {
        redis.command(&["HSET", entries, name, document]);
        redis.command(&["ZADD", order, version, name]);
        redis.command(&["ZADD", "spile:{:registry}:history", version, &format!("stamp{version} {name}")]);
    }
    let checked = Process::run(&["config", "check", text(&file), "--registry", &redis.url()]);
    assert_eq!(checked.status.code(), Some(1), "{}", said(&checked));
    assert!(said(&checked).contains("quarantine: tenants/acme: plan: no plan is called `gold`"));
    assert!(!said(&checked).contains("tenants/beta"), "{}", said(&checked));
}

#[test]
fn the_registry_file_is_readable_by_its_owner_alone_also_one_that_was_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, registry) = (folder.path().join("spile.toml"), folder.path().join("registry"));
    fs::write(&file, "[admin]\nregistry_file = \"registry\"\n").expect("the folder is ours");
    let mode = || fs::metadata(&registry).expect("it is there").permissions().mode() & 0o777;
    let serve = || Process::serve(&["--config", text(&file)]);
    let spile = serve();
    assert_eq!(mode(), 0o600);
    spile.end_by(Signal::TERM);
    fs::set_permissions(&registry, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let _running = serve();
    assert_eq!(mode(), 0o600);
}
