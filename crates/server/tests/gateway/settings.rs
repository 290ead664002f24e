//! `[gateway]` and `[[routes]]` in the file: everything that is read, shown and said.

use std::path::Path;
use std::process::Command;

use spile_server::Config;

const EXAMPLE: &str = include_str!("../../../../examples/gateway.toml");
/// The pages that have the settings.
const GUIDE: [&str; 3] = [
    include_str!("../../../../docs/guide/gateway-settings.md"),
    include_str!("../../../../docs/guide/gateway-limits.md"),
    include_str!("../../../../docs/guide/gateway-upstreams.md"),
];

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn parse(text: &str) -> Result<Config, String> {
    let path = repository().join("examples/gateway.toml");
    Config::parse(&path, text.to_owned(), []).map_err(|why| why.to_string())
}

#[test]
fn the_example_works_with_the_binary_itself() {
    let spile = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["config", "check", "examples/gateway.toml"])
        .current_dir(repository())
        .output()
        .expect("the binary was built with the tests");
    let said = String::from_utf8_lossy(&spile.stdout);
    assert!(
        spile.status.success() && said.contains("3 routes"),
        "{said}{}",
        String::from_utf8_lossy(&spile.stderr)
    );
}

#[test]
fn what_is_shown_is_a_file_that_shows_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    spile_testkit::redis::Certificates::make(folder.path());
    for (made, named) in [("server.pem", "chain.pem"), ("server.key", "key.pem")] {
        std::fs::rename(folder.path().join(made), folder.path().join(named)).expect("a file");
    }
    std::fs::copy(repository().join("examples/gateway.jwks.json"), folder.path().join("gateway.jwks.json"))
        .expect("a file");
    std::fs::write(folder.path().join("403.html"), "<p>No.</p>").expect("a file");
    let commented =
        ["upstream_", "forbidden", "[gateway.tls]", "certificate_file", "key_file", "client_ca_file", "file"];
    let uncommented = |line: &'static str| {
        let bare = line.strip_prefix("# ").filter(|bare| commented.iter().any(|key| bare.starts_with(key)));
        bare.unwrap_or(line)
    };
    let whole = EXAMPLE.lines().map(uncommented).collect::<Vec<_>>().join("\n");
    let path = folder.path().join("spile.toml");
    let shown = Config::parse(&path, whole, []).unwrap_or_else(|why| panic!("{why}")).to_string();
    let again = Config::parse(&path, shown.clone(), []).unwrap_or_else(|why| panic!("{why}")).to_string();
    // API keys are not shown, so that a second reading knows of none.
    let without_notes = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(without_notes(&again), without_notes(&shown));
    for (table, keys) in known_keys() {
        for key in keys.iter().filter(|key| **key != "also") {
            assert!(
                shown.contains(&format!("{key} = ")) || shown.contains(&format!(".{key}]")),
                "{table} {key}"
            );
        }
    }
}

#[test]
fn every_key_is_in_the_example_and_in_the_guide() {
    for (table, keys) in known_keys() {
        for key in keys {
            assert!(
                EXAMPLE.contains(&format!("{key} = ")) || EXAMPLE.contains(&format!(".{key}]")),
                "{table} {key}"
            );
            let spellings = [format!("`{key}"), format!("{key} = ")];
            let is_documented =
                GUIDE.iter().any(|page| spellings.iter().any(|spelling| page.contains(spelling.as_str())));
            assert!(is_documented, "the guide does not document {table} {key}");
        }
    }
}

/// The keys that the tables of the gateway take, as the message about an unknown one lists them.
fn known_keys() -> Vec<(&'static str, Vec<String>)> {
    let route = "[[routes]]\npath = \"/\"\nupstream = \"http://127.0.0.1:1\"\n";
    let tables = [
        ("gateway", "[gateway]\nnone = 1".to_owned()),
        ("gateway.access_log", "[gateway.access_log]\nnone = 1".to_owned()),
        ("gateway.tls", "[gateway.tls]\nnone = 1".to_owned()),
        ("gateway.jwt", "[gateway.jwt]\nnone = 1".to_owned()),
        ("routes", format!("{route}none = 1")),
        ("gateway.refusals", "[gateway.refusals]\nnone = 1".to_owned()),
        ("routes.refusals.limited", format!("{route}refusals.limited = {{ body = \"\", none = 1 }}")),
        ("routes.upstream_tls", format!("{route}upstream_tls = {{ none = 1 }}")),
        ("routes.health_check", format!("{route}health_check = {{ none = 1 }}")),
        ("routes.request_headers", format!("{route}request_headers = {{ none = 1 }}")),
        ("routes.adaptive", format!("{route}adaptive = {{ none = 1 }}")),
        ("routes.concurrency", format!("{route}concurrency = {{ none = 1 }}")),
        ("routes.limits", format!("{route}[[routes.limits]]\nnone = 1")),
    ];
    let keys = |(table, text): (&'static str, String)| {
        let why = parse(&text).expect_err("a key that nothing has");
        assert!(why.contains(&format!("`{table}` has no key `none`")), "{why}");
        let list = why.split("it takes ").nth(1).and_then(|rest| rest.lines().next()).expect("a list");
        // Rules for Envoy's descriptors have keys that limits of routes do not need.
        let keys = list.split(", ").filter(|key| !["late", "replaces"].contains(key));
        (table, keys.map(str::to_owned).collect())
    };
    tables.into_iter().map(keys).collect()
}

#[test]
fn a_secret_that_is_too_short_is_refused_with_its_length_and_the_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let key_file = folder.path().join("secret");
    std::fs::write(&key_file, "short").expect("a file");
    let file = format!("[gateway.jwt]\nkey_file = {:?}\nkeys = \"secret\"", key_file.display().to_string());
    let why = parse(&file).expect_err("five bytes are too few");
    assert!(why.contains("the secret has 5 bytes; HS256 takes 32 or more"), "{why}");
}

/// Parses a file in which these things are wrong, by line, and nothing else.
fn assert_faults(file: &str, faults: &[(usize, &str)]) {
    let why = parse(file).expect_err("all of it is wrong");
    for (line, words) in faults {
        let said =
            why.split("\n\n").any(|fault| fault.contains(words) && fault.contains(&format!(":{line}:")));
        assert!(said, "line {line}: {words} in\n{why}");
    }
    assert!(why.contains(&format!("{} things are wrong", faults.len())), "{why}");
}

#[test]
fn what_is_wrong_with_the_gateway_is_said_with_its_line() {
    let file = r#"
        [gateway]
        max_connections = 0
        max_header_bytes = "7 apples"
        write_timeout = "soon"
        upstream_ca_file = "nowhere.pem"
        [gateway.tls]
        key_file = "key.pem"
        [gateway.jwt]
        key_file = "nowhere.json"
        keys = "pgp"
    "#;
    let faults = [
        (3, "0 is out of bounds"),
        (4, "`***` is not a size"),
        (5, "`soon` is not a span of time"),
        (6, "nowhere.pem"),
        (7, "`gateway.tls` has no `certificate_file`"),
        (10, "nowhere.json"),
        (11, "`gateway.jwt.keys` cannot be `pgp`"),
    ];
    assert_faults(file, &faults);
}

#[test]
fn what_is_wrong_with_a_route_is_said_with_its_line() {
    let file = r#"
        [[routes]]
        path = "/a"
        upstream = ["http://127.0.0.1:9000/path", "http://127.0.0.1:9000", "unix:app.sock"]
        hosts = ["not a host"]
        balance = "fairly"
        retries = 9
        max_body = "2EiB"
        only_plans = ["platinum"]
        health_check = { interval = "5s" }
        adaptive = { decrease = 1.5, floor = 0 }
        concurrency = { per_upstream = 0 }
        request_headers = { set = { "content-length" = "0", "x y" = "1" }, remove = ["Host"] }
        response_headers = { add = { "x-a" = "1\r\nx-b: 2" } }
        upgrades = ["web socket", "", "irc/6.9", "H2C", "TLS/1.0"]
    "#;
    let faults = [
        (4, "`http://127.0.0.1:9000/***` is not an upstream"),
        (4, "`***` is not an upstream: write unix:/PATH or h2c+unix:/PATH, with an absolute path"),
        (5, "`not a host` is not a host"),
        (6, "`routes.balance` cannot be `fairly`"),
        (7, "9 is out of bounds"),
        (8, "`2EiB` is not a size"),
        (9, "no plan is called `platinum`"),
        (10, "`routes.health_check` has no `path`"),
        (11, "1.5 is out of bounds"),
        (11, "0 is out of bounds"),
        (12, "0 is out of bounds"),
        (13, "`content-length` frames or addresses"),
        (13, "`x y` is not the name of a header field"),
        (13, "`Host` frames or addresses"),
        (14, "the value of `x-a` holds a line end"),
        (15, "`web socket` is not a protocol"),
        (15, "`` is not a protocol"),
        (15, "`H2C` would carry requests past all rules"),
        (15, "`TLS/1.0` would carry requests past all rules"),
    ];
    assert_faults(file, &faults);
}

#[test]
fn what_is_wrong_with_each_of_several_routes_is_said_with_its_line() {
    let file = r#"
        [[routes]]
        path = "/a"
        upstream = "http://127.0.0.1:9000"
        [[routes.limits]]
        id = "default"
        plans = ["platinum"]
        also = ["default"]
        [[routes]]
        path = "/b"
        upstream = "ftp://127.0.0.1"
        rewrite_prefix = "/a<b"
        [[routes]]
        path = "a"
        upstream = []
        name = "two words"
    "#;
    let faults = [
        (6, "rule `default` is defined twice"),
        (7, "no plan is called `platinum`"),
        (8, "charged together anyway"),
        (11, "`ftp://127.0.0.1` is not an upstream"),
        (12, "`/a<b` cannot replace a path"),
        (14, "`a` is not a path pattern"),
        (15, "there is no upstream"),
        (16, "`two words` is not a name"),
    ];
    assert_faults(file, &faults);
}

#[test]
fn two_routes_of_one_name_are_one_too_many() {
    let route = "[[routes]]\npath = \"/a\"\nupstream = \"http://127.0.0.1:1\"\n";
    let why = parse(&format!("{route}{route}")).expect_err("twice the same");
    assert!(why.contains("two routes are called `/a`"), "{why}");
    parse(&format!("{route}hosts = [\"a.test\"]\n{route}hosts = [\"b.test\"]\n"))
        .expect("hosts tell them apart");
}

#[test]
fn a_caller_may_have_as_many_places_as_there_are_and_no_more() {
    let route = "[[routes]]\npath = \"/a\"\nupstream = \"http://127.0.0.1:1\"\n";
    let with = |cap: &str| parse(&format!("{route}concurrency = {{ {cap} }}"));
    for (cap, bound) in [("per_upstream = 4, per_caller = 5", "1 to 4"), ("per_caller = 0", "1 to 100")] {
        let why = with(cap).expect_err("out of bounds");
        assert!(
            why.contains("is out of bounds") && why.contains(bound) && why.contains("per_caller"),
            "{why}"
        );
    }
    for (cap, per_caller) in [("per_upstream = 4, per_caller = 4", 4), ("per_upstream = 5", 3)] {
        let shown = with(cap).expect("within bounds").to_string();
        assert!(shown.contains(&format!("per_caller = {per_caller}, ")), "{shown}");
    }
}

#[test]
fn what_is_wrong_with_tls_to_upstreams_is_said_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    spile_testkit::redis::Certificates::make(folder.path());
    let other = tempfile::tempdir().expect("a folder");
    spile_testkit::redis::Certificates::make(other.path());
    std::fs::copy(other.path().join("server.key"), folder.path().join("other.key")).expect("a file");
    let route = |tls: &str| format!("path = \"/\"\nupstream = \"https://a.test\"\nupstream_tls = {tls}\n");
    let table = [
        ("{ ca_file = \"nowhere.pem\" }", "nowhere.pem"),
        ("{ certificate_file = \"server.pem\" }", "a certificate and its key go together"),
        ("{ key_file = \"server.key\" }", "a certificate and its key go together"),
        ("{ certificate_file = \"server.pem\", key_file = \"other.key\" }", "server.pem"),
        ("{ certificate_file = \"server.key\", key_file = \"server.key\" }", "server.key"),
        ("{ server_name = \"two words\" }", "`two words` is not a server name"),
    ];
    let path = folder.path().join("spile.toml");
    for (tls, words) in table {
        let why = Config::parse(&path, format!("[[routes]]\n{}", route(tls)), []);
        let why = why.expect_err("it is wrong").to_string();
        assert!(
            why.contains(words) && why.contains(":4:") && why.contains("1 thing is wrong"),
            "{tls}: {why}"
        );
    }
    let gateway =
        "[gateway]\nupstream_certificate_file = \"server.pem\"\nupstream_key_file = \"other.key\"\n";
    let why = Config::parse(&path, format!("{gateway}[[routes]]\n{}", route("{}")), []);
    let why = why.expect_err("the key is another's").to_string();
    assert!(why.contains(":2:") && why.contains("1 thing is wrong"), "{why}");

    let plain =
        "[[routes]]\npath = \"/\"\nupstream = \"http://a.test\"\nupstream_tls = { server_name = \"a.test\" }";
    let config = Config::parse(&path, plain.to_owned(), []).expect("it works, for what it is worth");
    assert!(config.warnings().iter().any(|warning| warning.contains("`upstream_tls` does nothing")));
}

#[test]
fn what_is_wrong_with_a_page_for_refusals_is_said_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("large.html"), vec![b'x'; (64 << 10) + 1]).expect("a file");
    std::fs::write(folder.path().join("page.html"), "<p>wait {retry_after}</p>\u{7f}\n").expect("a file");
    let path = folder.path().join("spile.toml");
    let route = "[[routes]]\npath = \"/\"\nupstream = \"http://a.test\"\n";
    let table = [
        ("limited = { status = 200, body = \"\" }", "200 is not a status of a refusal"),
        ("limited = { status = 600, body = \"\" }", "600 is not a status of a refusal"),
        ("limited = { status = 66000, body = \"\" }", "66000 is not a status of a refusal"),
        ("limited = { status = 429 }", "the page for `limited` has no `body`"),
        ("limited = { body = \"\", body_file = \"page.html\" }", "both `body` and `body_file`"),
        ("forbidden = { body = \"\", content_type = \"html\" }", "`html` is not a content type"),
        ("forbidden = { body = \"\", content_type = \"text/html\\r\\nx: y\" }", "is not a content type"),
        ("unavailable = { body_file = \"nowhere.html\" }", "nowhere.html"),
        ("unavailable = { body_file = \"large.html\" }", "is too large"),
        ("teapot = { body = \"\" }", "has no key `teapot`"),
    ];
    for (page, words) in table {
        let why = Config::parse(&path, format!("{route}refusals.{page}\n"), []);
        let why = why.expect_err("it is wrong").to_string();
        assert!(
            why.contains(words) && why.contains(":4:") && why.contains("1 thing is wrong"),
            "{page}: {why}"
        );
    }
    let pages = "refusals.limited = { body_file = \"page.html\" }\nrefusals.unavailable = { body = \"\\u007F \\\"1\\\"\" }\n";
    let shown = Config::parse(&path, format!("{route}{pages}"), []).expect("it works").to_string();
    let again = Config::parse(&path, shown.clone(), []).unwrap_or_else(|why| panic!("{why}\n{shown}"));
    assert_eq!(again.to_string(), shown);
}

#[test]
fn a_limit_that_lies_outside_its_route_is_warned_of() {
    let route =
        "[[routes]]\npath = \"/scores\"\nupstream = \"http://127.0.0.1:1\"\nhosts = [\"*.example.com\"]\n";
    for (matcher, idle) in [
        ("path = \"/scores/top\"", false),
        ("path = \"/*\"", false),
        ("path = \"/top\"", true),
        ("path = \"/scoreboard\"", true),
        ("hosts = [\"api.example.com\"]", false),
        ("hosts = [\"example.org\"]", true),
    ] {
        let limit = format!("[[routes.limits]]\nid = \"few\"\nplans = [\"free\"]\nmatch = {{ {matcher} }}\n");
        let warnings = parse(&format!("{route}{limit}")).expect("it works").warnings();
        let warned =
            warnings.iter().any(|warning| warning.contains("limit `few`: what it matches lies outside"));
        assert_eq!(warned, idle, "{matcher}: {warnings:?}");
    }
}

/// A file with one route for each of these lines.
fn routes_with(lines: &[&str]) -> String {
    let route = |(at, line): (usize, &&str)| {
        format!("[[routes]]\npath = \"/{at}\"\nupstream = \"http://127.0.0.1:1\"\n{line}\n")
    };
    lines.iter().enumerate().map(route).collect()
}

#[test]
fn what_is_wrong_with_a_cost_or_an_estimate_is_said_with_its_line() {
    let lines = [
        "cost_from_response = \"opnai\"",
        "cost_from_response = \"json:usage\"",
        "cost_from_response = \"sse:/a~2\"",
        "cost_from_response = \"header:a b\"",
        "cost_from_response = 5",
        "estimate = 0",
        "estimate = \"body/0\"",
        "estimate = \"lots\"",
        "cost_from_response = true\nunread_cost = \"bytes/0\"",
        "error_cost = \"free\"",
        "upgrade_cost = 4",
        "unread_cost = \"bytes/4\"",
        "cost_from_response = true\nupgrades = []\nupgrade_cost = \"bytes/4\"",
    ];
    let said = [
        "`opnai` is not a place where a response says its cost",
        "the JSON pointer `usage` does not start with `/`",
        "a `~` is not followed by 0 or 1",
        "`a b` is not a header name",
        "this takes a place, as in `openai`, true or false",
        "0 is out of bounds",
        "body/0 is out of bounds",
        "`lots` is not an estimate",
        "bytes/0 is out of bounds",
        "`free` is not a cost of an answer",
        "`4` is not a cost of an answer",
    ];
    let mut end = 0;
    let ends = lines.iter().map(|line| {
        end += 3 + line.lines().count();
        end
    });
    let faults: Vec<(usize, &str)> = ends.zip(said).collect();
    assert_faults(&routes_with(&lines[..said.len()]), &faults);
    let idle = [
        "`unread_cost` has no effect without `cost_from_response`",
        "`upgrade_cost` has no effect with `upgrades = []`",
    ];
    assert_faults(&routes_with(&lines[said.len()..]), &[(4, idle[0]), (10, idle[1])]);
}

#[test]
fn a_cost_and_an_estimate_are_shown_as_they_are_written() {
    for (written, shown) in [
        ("cost_from_response = true", "cost_from_response = \"header:x-ratelimit-cost\""),
        ("cost_from_response = false", "cost_from_response = false"),
        ("cost_from_response = \"anthropic\"", "cost_from_response = \"anthropic\""),
        ("cost_from_response = \"sse:/a/0\"\nestimate = 500", "estimate = 500"),
        ("cost_from_response = \"openai\"\nestimate = \"header:X-Tokens\"", "estimate = \"header:x-tokens\""),
        ("cost_from_response = \"openai\"\nestimate = \"body/4\"", "estimate = \"body/4\""),
        ("cost_from_response = \"openai\"", "unread_cost = \"bytes/4\""),
        ("cost_from_response = true", "unread_cost = \"estimate\""),
        ("cost_from_response = \"openai\"\nunread_cost = 5000", "unread_cost = 5000"),
        ("cost_from_response = \"openai\"", "error_cost = \"rule\""),
        ("cost_from_response = \"openai\"\nerror_cost = \"none\"", "error_cost = \"none\""),
        ("cost_from_response = \"openai\"\nupgrade_cost = \"bytes/8\"", "upgrade_cost = \"bytes/8\""),
    ] {
        let config = parse(&routes_with(&[written])).unwrap_or_else(|why| panic!("{why}")).to_string();
        assert!(config.lines().any(|line| line == shown), "{written}: {config}");
    }
}

#[test]
fn an_estimate_that_is_never_settled_or_that_no_plan_covers_is_warned_of() {
    let warnings = |text: &str| parse(text).unwrap_or_else(|why| panic!("{why}")).warnings();
    let alone = warnings(&routes_with(&["estimate = 5"]));
    assert!(
        alone.iter().any(|warning| warning.contains("without `cost_from_response` the `estimate` stays")),
        "{alone:?}"
    );
    let above = warnings(&routes_with(&["cost_from_response = \"openai\"\nestimate = 11"]));
    let words = "the `estimate` of 11 is above the capacity of limit `free` (10): requests that rule `default` charges";
    assert!(above.iter().any(|warning| warning.contains(words)), "{above:?}");
    let covered = warnings(&routes_with(&["cost_from_response = \"openai\"\nestimate = 10"]));
    assert!(covered.iter().all(|warning| !warning.contains("estimate")), "{covered:?}");
}
