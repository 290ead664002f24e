//! The configuration file: what works, and what is said about what does not.

use std::path::Path;

use proptest::prelude::*;
use spile_server::{Config, STARTER};

use crate::support::Process;

fn parse(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::parse(Path::new("spile.toml"), text.to_owned(), variables).map_err(|why| why.to_string())
}

#[track_caller]
fn shown(text: &str, variables: &[(&str, &str)]) -> String {
    parse(text, variables).unwrap_or_else(|why| panic!("{why}")).to_string()
}

const EVERYTHING: &str = include_str!("everything.toml");

#[test]
fn a_wrong_number_of_a_variable_is_told_with_the_variable_the_value_and_what_is_wanted() {
    let long = "9".repeat(100);
    for (name, value, message, fix) in [
        (
            "SPILE_STORE__CONNECTIONS",
            "abc",
            "`store.connections` is `abc`",
            "this takes a whole number from 0",
        ),
        ("SPILE_STORE__CONNECTIONS", "-1", "`store.connections` is `-1`", "this takes a whole number from 0"),
        (
            "SPILE_STORE__CONNECTIONS",
            "1.5",
            "`store.connections` is `1.5`",
            "this takes a whole number from 0",
        ),
        ("SPILE_STORE__CONNECTIONS", "", "`store.connections` is empty", "this takes a whole number from 0"),
        ("SPILE_OBSERVE__ENABLED", "yes", "`observe.enabled` is `yes`", "this takes `true` or `false`"),
        (
            "SPILE_GATEWAY__ACCESS_LOG__SAMPLE",
            "x",
            "`gateway.access_log.sample` is `x`",
            "this takes a number",
        ),
        ("SPILE_RULES__0__COST", "ten", "`rules.cost` is `ten`", "this takes a number of tokens"),
        ("SPILE_RULES__0__COST", &format!("{long}x"), "`rules.cost` is `***`", "tokens"),
        (
            "SPILE_PLANS__FREE__CAPACITY",
            "1e-7",
            "`plans.free.capacity` is `1e-7`",
            "this takes a number of tokens",
        ),
    ] {
        let file = "[[rules]]\nid = \"a\"\nplans = [\"free\"]\n";
        let why = parse(file, &[(name, value)]).expect_err("it is wrong");
        let line = format!("error: {message}\n --> environment variable {name}: ");
        assert!(why.contains(&line) && why.contains(fix), "{line} in {why}");
    }
    let why = parse("[store]\nconnections = \"abc\"\n", &[]).expect_err("it is wrong");
    assert!(why.contains("`store.connections` is text"), "the file shows its line: {why}");
}

#[test]
fn numbers_of_tokens_may_have_six_decimals_and_a_unit() {
    let file = "[plans.purse]\ncapacity = 2.5\nrefill = \"0.5/h\"\ndebt = 0.25\nunit = \"usd\"\n\
                [plans.bill]\nquota = 250.5\nper = \"month\"\nunit = \"tokens\"\n\
                [[rules]]\nid = \"a\"\nplans = [\"purse\"]\ncost = 0.003175\n";
    let shown = shown(file, &[("SPILE_PLANS__FREE__CAPACITY", "7.5")]);
    for line in [
        "capacity = 2.5\nrefill = \"0.5/h\"\ndebt = 0.25\nunit = \"usd\"",
        "unit = \"tokens\"\nquota = 250.5\nper = \"month\"",
        "capacity = 7.5",
        "cost = 0.003175",
    ] {
        assert!(shown.contains(line), "{line} in\n{shown}");
    }
}

#[test]
fn a_file_with_every_table_works() {
    let shown = shown(EVERYTHING, &[("SPILE_ADMIN_TOKEN", "is in no file here")]);
    for line in [
        "grpc = \"127.0.0.1:8083\"",
        "resp = \"127.0.0.1:6380\"",
        "hosts = [\"spile.internal\", \"*.example.com\"]",
        "idle_timeout = \"5m\"",
        "url = \"redis://127.0.0.1:6379\"",
        "fail_closed_retry_after = \"1s\"",
        "deny_cache = \"250ms\"",
        "lease_share = 0.2",
        "{ name = \"burst\", capacity = 10, refill = \"1/s\", lease = \"100ms\" },",
        "replicas = 3",
        "token_file = \"admin.token\"",
        "trusted_proxies = [\"10.0.0.0/8\", \"127.0.0.1/32\"]",
        "{ name = \"daily\", capacity = 10000, refill = \"10000/day\" },",
        "{ name = \"month\", debt = 40000, quota = 100000, per = \"month\", zone = \"Europe/Berlin\", anchor = 15 },",
        "{ name = \"week\", quota = 50000, per = \"week\", anchor = \"sat\" },",
        "limits = { month = { quota = 200000, per = \"month\", zone = \"Europe/Berlin\", anchor = 15 } }",
        "match = { path = \"/scores/*\", methods = [\"POST\", \"PUT\", \"DELETE\"] }",
        "anonymous_plan = \"free\"",
        "upstream = [\"http://127.0.0.1:9000\"]",
    ] {
        assert!(shown.contains(line), "{line} in\n{shown}");
    }
    assert!(!shown.contains("9f86d081"), "hashes of keys are not shown:\n{shown}");
}

#[test]
fn what_is_shown_is_a_file_that_shows_the_same() {
    let settings = |shown: &str| -> Vec<String> {
        shown.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    let once = shown(EVERYTHING, &[("SPILE_ADMIN_TOKEN", "is in no file here")]);
    assert_eq!(settings(&shown(&once, &[("SPILE_ADMIN_TOKEN", "is in no file here")])), settings(&once));
}

#[test]
fn the_starter_says_what_holds_without_it() {
    assert_eq!(shown(STARTER, &[]), shown("", &[]));
}

#[test]
fn a_variable_for_an_item_that_the_file_does_not_have_is_an_error() {
    let lists = "[plans.gold]\nlimits = [{ name = \"a\", capacity = 1, refill = \"1/s\" }]\n\
         [[rules]]\nid = \"a\"\nplans = [\"gold\"]\nkey = [\"ip\"]\n\
         [[tenants]]\nid = \"acme\"\nplan = \"gold\"\n\
         [[routes]]\npath = \"/\"\nupstream = [\"http://127.0.0.1:9\"]\nlimits = [{ id = \"b\", plans = [\"gold\"] }]\n";
    let defaults = "[plans.gold]\ncapacity = 1\nrefill = \"1/s\"\n";
    for (file, name, said) in [
        (lists, "SPILE_RULES__1__MODE", "`rules` has no item 1: the length of the list in the file is 1"),
        (lists, "SPILE_RULES__01X__MODE", "`rules` has no item 01x: the length of the list in the file is 1"),
        (lists, "SPILE_RULES__-1__MODE", "`rules` has no item -1: the length of the list in the file is 1"),
        (lists, "SPILE_RULES__0__KEY__1", "`key` has no item 1: the length of the list in the file is 1"),
        (lists, "SPILE_TENANTS__7__PLAN", "`tenants` has no item 7: the length of the list in the file is 1"),
        (lists, "SPILE_ROUTES__1__PATH", "`routes` has no item 1: the length of the list in the file is 1"),
        (
            lists,
            "SPILE_ROUTES__0__UPSTREAM__1",
            "`upstream` has no item 1: the length of the list in the file is 1",
        ),
        (
            lists,
            "SPILE_ROUTES__0__LIMITS__1__COST",
            "`limits` has no item 1: the length of the list in the file is 1",
        ),
        (
            lists,
            "SPILE_PLANS__GOLD__LIMITS__1__CAPACITY",
            "`limits` has no item 1: the length of the list in the file is 1",
        ),
        (defaults, "SPILE_RULES__0__MODE", "`rules` has no item 0: the length of the list in the file is 0"),
        (defaults, "SPILE_RULES__0", "`rules` has no item 0: the length of the list in the file is 0"),
        (
            defaults,
            "SPILE_WEBHOOKS__0__URL",
            "`webhooks` has no item 0: the length of the list in the file is 0",
        ),
    ] {
        let why = parse(file, &[(name, "shadow")]).expect_err("it is wrong");
        assert!(why.contains(&format!("error: {said}\n --> environment variable {name}: ")), "{name}: {why}");
    }
    for (name, value) in [("SPILE_RULES__0__MODE", "shadow"), ("SPILE_PLANS__GOLD__LIMITS__0__CAPACITY", "2")]
    {
        assert_eq!(parse(lists, &[(name, value)]).err(), None, "{name}");
    }
    let named = [("SPILE_PLANS__RULES__CAPACITY", "5"), ("SPILE_PLANS__RULES__REFILL", "1/s")];
    assert_eq!(parse(defaults, &named).err(), None, "a plan may have the name of a list");
}

#[test]
fn the_environment_stands_above_the_file() {
    let file = "[store]\nreplicas = 2\n[plans.free]\ncapacity = 10\nrefill = \"1/s\"\n[[rules]]\nid = \"a\"\nplans = [\"free\"]";
    let shown = shown(
        file,
        &[
            ("SPILE_STORE__REPLICAS", "5"),
            ("SPILE_STORE__MAX_KEYS", "20000"),
            ("SPILE_STORE__URL", "redis://elsewhere:6379"),
            ("SPILE_PLANS__FREE__CAPACITY", "20"),
            ("SPILE_CLIENTS__TRUSTED_PROXIES", "10.0.0.0/8, fd00::/8"),
            ("SPILE_RULES__0__COST", "3"),
            ("SPILE_ADMIN_TOKEN", "is no value of the file"),
            ("PATH", "is nobody's business"),
        ],
    );
    for line in [
        "replicas = 5",
        "max_keys = 20000",
        "url = \"redis://elsewhere:6379\"",
        "capacity = 20",
        "trusted_proxies = [\"10.0.0.0/8\", \"fd00::/8\"]",
        "cost = 3",
    ] {
        assert!(shown.contains(line), "{line} in\n{shown}");
    }
}

#[test]
fn a_quota_can_be_set_by_the_environment() {
    let shown = shown(
        "[plans.gold]\nquota = 5\nper = \"day\"\n",
        &[
            ("SPILE_PLANS__GOLD__QUOTA", "100000"),
            ("SPILE_PLANS__GOLD__PER", "month"),
            ("SPILE_PLANS__GOLD__ZONE", "europe/berlin"),
            ("SPILE_PLANS__GOLD__ANCHOR", "15"),
            ("SPILE_PLANS__GOLD__DEBT", "40000"),
            ("SPILE_PLANS__YEARLY__QUOTA", "7"),
            ("SPILE_PLANS__YEARLY__PER", "year"),
            ("SPILE_PLANS__YEARLY__ANCHOR", "04-01"),
        ],
    );
    for plan in [
        "[plans.\"gold\"]\ndebt = 40000\nquota = 100000\nper = \"month\"\nzone = \"Europe/Berlin\"\nanchor = 15\n",
        "[plans.\"yearly\"]\nquota = 7\nper = \"year\"\nanchor = \"04-01\"\n",
    ] {
        assert!(shown.contains(plan), "{plan} in\n{shown}");
    }
}

#[test]
fn every_mistake_is_named_at_once_with_its_line_and_what_would_be_right() {
    let file = r#"
[listen]
http = "nowhere"
[store]
ulr = "memory:"
timeout = "fast"
replicas = "many"
on_failure = "panic"
[plans.free]
capacity = 0
refill = "1/s"
[plans.slow]
refill = "1 per year"
[plans.tenant]
refill = "1/s"
[plans."cl.throttle"]
refill = "1/s"
[resp]
password_file = "nowhere/password"
idle_timeout = "soon"
[[rules]]
id = "login"
match = { path = "login", methods = ["POST"] }
key = ["mac-address"]
plans = ["golden"]
[[rules]]
id = "login"
plans = "tenant"
anonymous_plan = "slow"
mode = "watch"
also = ["nobody"]
[[rules]]
id = "half"
match = { domain = "edge" }
plans = ["slow"]
[[rules]]
id = "both"
match = { path = "/x", domain = "edge", entries = ["=x"] }
key = ["ip"]
plans = "tenant"
[grpc]
timeout = "2m"
[[tenants]]
id = "acme"
plan = "platinum"
api_keys = ["hunter2"]
[[tenants]]
plan = "free"
[[routes]]
path = "scores"
upstream = "127.0.0.1"
"#;
    let why = parse(file, &[("SPILE_STORE__PREFX", "x")]).expect_err("nearly everything is wrong");
    for words in [
        "spile.toml:3",
        "`nowhere` is not an address",
        "`store` has no key `ulr`",
        "did you mean `url`? it takes url, prefix, timeout",
        "`fast` is not a span of time",
        "`store.replicas` is text",
        "a whole number",
        "`panic` is not a failure policy",
        "capacity 0 is outside 1 to 1000000000",
        "`1 per year` is not a refill",
        "no plan can be called `tenant`",
        "no plan can be called `cl.throttle`",
        "the password cannot be read",
        "`soon` is not a span of time",
        "descriptors need `entries` too",
        "a rule is for HTTP requests or for descriptors, not for both",
        "`=x` is not an entry of a descriptor",
        "the entries of a descriptor are the key",
        "descriptors that belong to no tenant need a plan, too",
        "`2m` is out of bounds",
        "`login` is not a path pattern",
        "`mac-address` is not a key",
        "no plan is called `golden`",
        "rule `login` is defined twice",
        "`rules.mode` cannot be `watch`",
        "no rule has the id `nobody`",
        "no plan is called `platinum`",
        "this is not the hash of an API key",
        "`tenants` has no `id`",
        "`scores` is not a path",
        "`127.0.0.1` is not an upstream",
        "environment variable SPILE_STORE__PREFX",
    ] {
        assert!(why.contains(words), "{words} in\n{why}");
    }
    assert!(
        !why.contains("hunter2") || why.matches("hunter2").count() == 1,
        "only the line itself shows it: {why}"
    );
}

/// One mistake each: the place, what is wrong and what would be right.
#[test]
fn each_mistake_has_its_place_and_what_would_be_right() {
    for (file, place, what, right) in [
        ("[listen]\nhttp = 8080", "2:8", "`listen.http` is a whole number", "text in quotes"),
        ("[listen]\nhttp = \"localhost\"", "2:8", "`localhost` is not an address", "`127.0.0.1:8080`"),
        ("[store]\nurl = \"redis://\"", "2:7", "names no host", "a store that can be set up"),
        ("[store]\ntimeout = \"0s\"", "2:11", "`0s` is out of bounds", "1ms to 1m"),
        ("[store]\ndeny_cache = \"1m\"", "2:14", "`1m` is out of bounds", "0s to 10s"),
        ("[store]\ndeny_cache = 100", "2:14", "100 has no unit", "`100ms`, or 0"),
        ("[store]\ndeny_cache = \"soon\"", "2:14", "`soon` is not a span of time", "`50ms`"),
        ("[store]\nlease_share = 0", "2:15", "0 is out of bounds", "0.001 to 1"),
        ("[plans.x]\nrefill = \"1/s\"\nlease = \"11s\"", "3:9", "`11s` is out of bounds", "1ms to 10s"),
        ("[store]\nreplicas = 0", "2:12", "0 is out of bounds", "1 to 10000"),
        ("[store]\nreplicas = -3", "2:12", "`store.replicas` is -3", "a whole number from 0"),
        ("[store]\nmax_keys = 10", "2:12", "10 is out of bounds", "1000 to 100000000"),
        ("[store]\ntime = \"sundial\"", "2:8", "`sundial`", "`server` or `client`"),
        ("[store]\nprefix = \"\"", "2:10", "prefix `` is not 1 to 64 letters, digits", "`spile`"),
        ("[store]\nprefix = \"{a}\"", "2:10", "prefix `{a}` is not 1 to 64 letters", "`spile`"),
        ("[clients]\ntrusted_proxies = [\"10.0.0.0/33\"]", "2:20", "is not a network", "`10.0.0.0/8`"),
        ("[clients]\nipv6_prefix = 129", "2:15", "129 is out of bounds", "1 to 128"),
        ("[plans.gold]\nrefill = \"1/fortnight\"", "2:10", "is not a refill", "`100/min`"),
        (
            "[plans.gold]\ncapacity = 1.0000001\nrefill = \"1/s\"",
            "2:12",
            "`plans.gold.capacity` is 1.0000001",
            "at most six decimals",
        ),
        (
            "[plans.gold]\ncapacity = 0.5\nrefill = \"1/s\"",
            "2:12",
            "capacity 0.5 is outside 1",
            "1 to 1000000000",
        ),
        (
            "[plans.gold]\nrefill = \"1/s\"\nunit = \"dollars\"",
            "3:8",
            "not a unit",
            "a currency in lower case, as in `usd`",
        ),
        ("[plans.\"a b\"]\nrefill = \"1/s\"", "1:8", "name \"a b\" is not 1 to 64 letters", "`gold`"),
        ("[plans.gold]\nrefill = \"1/s\"\n[plans.gold]", "3:8", "duplicate key", "as TOML has it"),
        ("[plans.gold]\nlimits = [{ refill = \"1/s\" }]", "2:11", "has no `name`", "add `name"),
        ("[[rules]]\nid = \"a\"\nplans = [\"free\"]\ncost = -1", "4:8", "`rules.cost` is -1", "from 0"),
        ("[[rules]]\nplans = [\"free\"]", "1:1", "`rules` has no `id`", "add `id"),
        ("[[rules]]\nid = \"a\"\nplans = [\"free\"]\nmatch = \"/\"", "4:9", "is text", "a table"),
        ("[[rules]]\nid = \"a\"\nplans = [\"free\"]\nkey = \"ip\"", "4:7", "is text", "a list of texts"),
        ("[[tenants]]\nid = \"\"\nplan = \"free\"", "2:6", "it takes 1 to 1024 bytes", "`acme`"),
        ("[[tenants]]\nid = \"a\"\nplan = [\"free\"]", "3:8", "`tenants.plan` is a list", "text in quotes"),
        ("[rules]\nid = \"a\"", "1:1", "`rules` is a table", "a list of tables"),
        ("[observe]\nshow_keys = \"yes\"", "2:13", "is text", "`true` or `false`"),
        ("[admin]\ntoken_file = \".\"", "2:14", "the token cannot be read", "a file that holds the token"),
        (
            "[store]\nprefx = \"x\"",
            "2:1",
            "`store` has no key `prefx`",
            "did you mean `prefix`? it takes url, prefix",
        ),
        ("[sotre]\nurl = \"memory:\"", "1:2", "has no key `sotre`", "did you mean `store`?"),
        (
            "[[rules]]\nid = \"a\"\nplans = [\"fre\"]",
            "3:10",
            "no plan is called `fre`",
            "did you mean `free`?",
        ),
        (
            "[[rules]]\nid = \"a\"\nplans = [\"free\"]\nalso = [\"defualt\"]",
            "4:9",
            "no rule has the id `defualt`",
            "did you mean `default`?",
        ),
        (
            "[[rules]]\nid = \"a\"\nplans = [\"free\"]\nonFailure = \"deny\"",
            "4:1",
            "`onFailure`",
            "`on_failure`?",
        ),
        (
            "[plans.gold]\nrefill = \"1/s\"\nname = \"gold\"",
            "3:1",
            "has no key `name`",
            "it takes capacity, refill",
        ),
        ("[[rules]]\nid = \"a\"\nplans = [\"free\", 5, \"pro\", true]", "3:9", "is a list", "plan names"),
        (
            "[[rules]]\nid = \"a\"\nplans = [\"free\"]\nkey = [\"ip\", 1, 2]",
            "4:17",
            "is a whole number",
            "text",
        ),
        ("[http]\ntls = [\"a.pem\", \"b.pem\"]", "2:7", "`http.tls` is a list", "a table"),
        ("shoes = 5", "1:1", "has no key `shoes`", "it takes listen, http, store"),
    ] {
        assert_told(file, place, what, right);
    }
}

#[test]
fn each_mistake_in_a_quota_or_a_debt_has_its_place_and_what_would_be_right() {
    for (file, place, what, right) in [
        ("[plans.x]\nquota = 5", "1:1", "`plans.x` has no `per`", "add `per"),
        (
            "[plans.x]\nrefill = \"1/s\"\nquota = 5\nper = \"day\"",
            "2:10",
            "a quota has no `refill`",
            "a rate (",
        ),
        ("[plans.x]\nquota = 5\nper = \"day\"\nlease = \"1s\"", "4:9", "a quota has no `lease`", "a quota ("),
        ("[plans.x]\nquota = 0\nper = \"day\"", "2:9", "a quota of 0 is out of bounds", "1 to 1000000000"),
        ("[plans.x]\nquota = 5\nper = \"days\"", "3:7", "`days` is not a period", "`month`"),
        ("[plans.x]\nquota = 5\nper = \"day\"\nzone = \"Berlin\"", "4:8", "did you mean", "`Europe/Berlin`"),
        (
            "[plans.x]\nquota = 5\nper = \"day\"\nanchor = 24",
            "4:10",
            "a day has hours 0 to 23",
            "leave it out",
        ),
        (
            "[plans.x]\nquota = 5\nper = \"day\"\nanchor = [1]",
            "4:10",
            "`plans.x.anchor` is a list",
            "an hour",
        ),
        ("[plans.x]\nrefill = \"1/day\"\ndebt = 9999", "3:8", "a debt of 9999", "within ten years"),
    ] {
        assert_told(file, place, what, right);
    }
}

#[track_caller]
fn assert_told(file: &str, place: &str, what: &str, right: &str) {
    let why = parse(file, &[]).expect_err(file);
    for words in [&format!("spile.toml:{place}"), what, right] {
        assert!(why.contains(words), "{words} in\n{why}");
    }
}

#[test]
fn a_secret_that_is_missing_hides_no_other_mistake_of_its_webhook() {
    let file = r#"
[[webhooks]]
url = "ftp://ops.example.com"
secret_file = "nowhere/secret"
events = ["key_denied", "rain"]
[[webhooks]]
secret_file = "nowhere/either"
"#;
    let why = parse(file, &[]).expect_err("all of it is wrong");
    for words in [
        "is not a URL to post to",
        "`rain` is not an event",
        "spile.toml:4:15",
        "`webhooks` has no `url`",
        "spile.toml:7:15",
        "5 things are wrong",
    ] {
        assert!(why.contains(words), "{words} in\n{why}");
    }
}

#[test]
fn of_very_many_mistakes_a_thousand_are_shown_and_all_are_counted() {
    let tenant = |number| format!("[[tenants]]\nid = \"t{number}\"\nplan = \"none\"\n");
    let file: String = (0..3_000).map(tenant).collect();
    let why = parse(&file, &[]).expect_err("no tenant has a plan");
    assert_eq!(why.matches("no plan is called `none`").count(), 1_000);
    assert!(why.contains("and 2000 more") && why.contains("3000 things are wrong"), "{why}");
}

#[test]
fn text_that_is_no_toml_is_said_with_its_line() {
    let why = parse("[store\nurl = \"memory:\"", &[]).expect_err("a bracket is missing");
    assert!(why.contains("spile.toml:1"), "{why}");
}

#[test]
fn a_cost_that_could_never_pass_is_a_mistake() {
    let file = "[plans.small]\nrefill = \"5/min\"\n[[rules]]\nid = \"a\"\nplans = [\"small\"]\ncost = 6";
    let why = parse(file, &[]).expect_err("six of five");
    assert!(why.contains("above the capacity of limit small") && why.contains("at most 5"), "{why}");
}

#[test]
fn the_binary_checks_shows_and_starts_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let file = path.to_str().expect("the folder's name is text");

    let init = Process::run(&["config", "init"]);
    std::fs::write(&path, &init.stdout).expect("the folder is ours");
    let check = Process::run(&["config", "check", file]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let show = Process::run(&["config", "show", "--config", file, "--store", "redis://:hunter2@host"]);
    let show = String::from_utf8_lossy(&show.stdout);
    assert!(show.contains("url = \"redis://***@host\""), "{show}");

    std::fs::write(&path, "[store]\nurl = \"floppy:\"\n").expect("the folder is ours");
    let check = Process::run(&["config", "check", file]);
    assert_eq!(check.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&check.stderr);
    assert!(stderr.contains("spile.toml:2:7") && stderr.contains("names no store"), "{stderr}");
    let missing = Process::run(&["config", "check", "nowhere.toml"]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn a_rule_for_descriptors_is_shown_as_it_was_written() {
    let file = "[listen]\ngrpc = \"127.0.0.1:8083\"\n[grpc]\ntimeout = \"18ms\"\n[[rules]]\nid = \"a\"\nplans = [\"free\"]\n\
                match = { domain = \"edge\", entries = [\"generic_key=login\", \"path=/api/*\", \"remote_address\"] }";
    let once = shown(file, &[]);
    for line in [
        "timeout = \"18ms\"",
        "match = { domain = \"edge\", entries = [\"generic_key=login\", \"path=/api/*\", \"remote_address\"] }",
    ] {
        assert!(once.contains(line), "{line} in\n{once}");
    }
    assert_eq!(shown(&once, &[]), once);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_the_strings_are_config_show_prints_a_file_that_reads_back(
        tenant in "[^\\p{Cc}]{1,20}",
        literal in "[^\\p{Cc}+]{1,20}",
        domain in "\\PC{0,4}[\u{0}-\u{9f}\u{200d}'\"\\\\]{1,6}",
        value in any::<String>(),
        prefix in "\\PC{1,20}",
    ) {
        let quoted = |text: &str| serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007F");
        let file = format!(
            "[store]\nprefix = {}\n[[tenants]]\nid = {}\nplan = \"free\"\n[[rules]]\nid = \"a\"\nkey = [{}]\n\
             plans = [\"free\"]\n[[rules]]\nid = \"b\"\nmatch = {{ domain = {}, entries = [{}] }}\nplans = [\"free\"]\n",
            quoted(&prefix), quoted(&tenant), quoted(&format!("literal:{literal}")), quoted(&domain),
            quoted(&format!("k={value}")),
        );
        let parse = |text: String| Config::parse(Path::new("spile.toml"), text, Vec::<(String, String)>::new());
        // Some strings are refused, each by its own rule.
        let Ok(config) = parse(file) else { return Ok(()) };
        let shown = config.to_string();
        let again = parse(shown.clone()).map_err(|why| TestCaseError::fail(format!("{why}\n{shown}")))?;
        prop_assert_eq!(again.to_string(), shown);
    }
}

#[test]
fn the_deny_cache_is_switched_off_by_zero_with_a_unit_or_without() {
    for zero in ["0", "\"0\"", "\"0s\"", "\"0ms\""] {
        let shown = shown(&format!("[store]\ndeny_cache = {zero}\n"), &[]);
        assert!(shown.contains("deny_cache = \"0s\""), "{zero}:\n{shown}");
    }
    let shown = shown("", &[("SPILE_STORE__DENY_CACHE", "0")]);
    assert!(shown.contains("deny_cache = \"0s\""), "{shown}");
}
