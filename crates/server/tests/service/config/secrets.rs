//! What is secret is part of no message, and what a secret guards never opens because the secret is gone.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use spile_server::Config;
use spile_testkit::wait;
use tempfile::TempDir;

use crate::support::Process;

const PASSWORD: &str = "hunter2";
const WITH_TOKEN: &str = "[admin]\ntoken_file = \"admin.token\"\n";

fn explained(text: &str, variables: &[(&str, &str)]) -> String {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let why = Config::parse(Path::new("spile.toml"), text.to_owned(), variables).expect_err("it is wrong");
    let lines: Vec<String> = why.lines().collect();
    format!("{why}\n{why:?}\n{lines:?}")
}

#[test]
fn no_secret_is_part_of_what_is_said_about_a_file() {
    for text in [
        "[store]\nurl = \"reds://:hunter2@h:6379\"",
        "[store]\nurl = \"redis:/user:hunter2@h\"",
        "[store]\nurl = \"redis://user:hunter2@\"",
        "[store]\nurl = \"redis://:hunter2\"",
        "[store]\nurl = 'hunter2@h'",
        "[store]\nurl = redis://:hunter2@h",
        "[store]\nurl = \"redis://:hunter2@h",
        "[store]\nurl = \"redis://:a\"hunter2@h\"",
        "[store]\nurl = \"redis://h?password=hunter2\"",
        "store = { url = \"reds://:hunter2@h\", no_such_key = 1 }",
        "[listen]\nhttp = \"http://user:hunter2@h\"",
        "[observe]\notlp = \"htp://user:hunter2@h\"",
        "[observe]\notlp_headers = { \"x team\" = \"hunter2\" }",
        "[observe]\notlp_headers = { x-team = \"hunter2\", x = 1 }",
        "[observe]\notlp_headers = { x-team = \"hunter2\\n\" }",
        "[observe]\notlp_headers = { x-team = \"hunter2\"",
        "[observe]\notlp_headers = [\"x-team=hunter2\"]",
        "[observe.otlp_headers]\nhost = \"hunter2\"",
        "[observe.otlp_headers]\nx-team = \"hunter2\"\nx = 1",
        "[[webhooks]]\nurl = \"htps://user:hunter2@h\"\nsecret_file = \"s\"",
        "[[webhooks]]\nurl = \"https://h\"\nsecret = \"hunter2\"",
        "[[routes]]\npath = \"/\"\nupstream = \"http://user:hunter2@h\"",
        "[[routes]]\npath = \"/\"\nupstream = \"http://h\"\nrequest_headers = { set = { Authorization = \"Basic hunter2\" }, x = 1 }",
        "[admin]\ntoken = \"hunter2\"",
        "[resp]\npassword = \"hunter2\"",
        "[[tenants]]\nid = \"a\"\nplan = \"free\"\napi_keys = [\"hunter2\"]",
        "[[tenants]]\nid = \"a\"\nplan = \"free\"\napi_keys = [\n  \"sha256:x\",\n  \"hunter2\",\n]",
    ] {
        let said = explained(text, &[]);
        assert!(!said.contains(PASSWORD) && said.contains("***"), "{text}\n{said}");
    }
    for (name, value) in [
        ("SPILE_STORE__URL", "reds://:hunter2@h"),
        ("SPILE_STORE__URL", "redis://:hunter2@"),
        ("SPILE_LISTEN__HTTP", "redis://:hunter2@h"),
        ("SPILE_CLIENTS__TRUSTED_PROXIES", "http://a:hunter2@h"),
        ("SPILE_STORE__CONNECTIONS", "redis://:hunter2@h"),
        ("SPILE_TENANTS__0__API_KEYS", "hunter2"),
        ("SPILE_OBSERVE__OTLP_HEADERS", "hunter2"),
        ("SPILE_OBSERVE__OTLP_HEADERS", "a b=hunter2"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,hunter2"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "host=hunter2"),
    ] {
        let said = explained("[observe]\notlp = \"http://127.0.0.1:4318\"\n", &[(name, value)]);
        assert!(!said.contains(PASSWORD), "{name}={value}\n{said}");
    }
}

/// A secret that is close to no known word.
const SECRET: &str = "Zq7hunter2vX";
/// Keys whose values are names, which are shown.
const NAMED: &str = "also anchor anonymous_plan audience balance content_type cost_from_response credential \
    domain entries estimate events format header \
    headers hosts id issuer key level methods mode name on_failure path paths per plan \
    plan_claim plans prefix principal_header protocols proxy refill remove replaces retry_on rewrite_prefix shared strip_prefix subset \
    tenant_claim time unmatched zone";

fn is_named(key: &str) -> bool {
    NAMED.split(' ').any(|named| named == key)
}

/// Lines of a file with a mistake in each, and the secret in place of the value.
fn mistaken(key: &str) -> Vec<String> {
    let misspelt = format!("{}x{}", &key[..1], &key[1..]);
    let mut lines = vec![
        format!("{misspelt} = \"{SECRET}\""),
        format!("{misspelt} = '''{SECRET}'''"),
        format!("{misspelt} = [\"a\", \"{SECRET}\"]"),
        format!("{misspelt} = {{ name = \"{SECRET}\" }}"),
        format!("{misspelt}.id = \"{SECRET}\""),
        format!("{misspelt} = \"https://example.com/{SECRET}\""),
        format!("{key} = {{ no_such_key = \"{SECRET}\" }}"),
        format!("{key} = [[\"{SECRET}\"], 1, {{ a = \"{SECRET}\" }}]"),
        format!("{key} = {SECRET}"),
        format!("{key} = \"{SECRET}"),
        format!("{key} = {SECRET}\""),
        format!("{key} = \"a\"{SECRET}\""),
        format!("{key} \"{SECRET}\""),
        format!("{key} = \"a\" {SECRET}"),
        format!("{key} = \"\"\"\n{SECRET}\n{SECRET} = 1"),
        format!("{key} = [\"a\",\n  \"{SECRET}\",\n  {SECRET}"),
        format!("{key} = true true # {SECRET}"),
        format!("\"{SECRET}\""),
    ];
    if !is_named(key) {
        lines.extend([format!("{key} = \"{SECRET}\""), format!("{key} = [\"{SECRET}\"]")]);
        let urls = [
            "SECRET@h",
            "h:6379:SECRET",
            "redis://h:6379:SECRET",
            "redis://SECRET",
            "htps://h.example/SECRET",
            "reds://:SECRET@h",
            "reds://h?a=SECRET",
            "https://SECRET",
            "SECRET://h",
            "redis://h/SECRET",
            "http://u:SECRET@h",
        ];
        lines.extend(urls.map(|url| format!("{key} = \"{}\"", url.replace("SECRET", SECRET))));
    }
    lines
}

/// Checks that the error shows no secret, if there is one.
fn hides_secrets(text: &str, variables: &[(String, String)]) -> bool {
    let parsed = Config::parse(Path::new("spile.toml"), text.to_owned(), variables.to_vec());
    let Err(why) = parsed else { return false };
    let lines: Vec<String> = why.lines().collect();
    let said = format!("{why}\n{why:?}\n{lines:?}");
    assert!(!said.contains(SECRET), "{text}\n{variables:?}\n{said}");
    true
}

#[test]
fn a_secret_in_the_wrong_place_is_never_shown() {
    let (mut section, mut told, mut keys) = (String::new(), 0, 0);
    for line in include_str!("everything.toml").lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.starts_with('[') && line.ends_with(']') {
            line.clone_into(&mut section);
        }
        let key = line.split('=').next().unwrap_or_default().trim();
        let is_key = line.contains('=') && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if !is_key || key.len() < 2 {
            continue;
        }
        keys += 1;
        for mistake in mistaken(key) {
            for after in ["", "[log]\nlevel = \"info\"\n"] {
                told += usize::from(hides_secrets(&format!("{section}\n{mistake}\n{after}"), &[]));
            }
        }
        let table = section.trim_matches(['[', ']']).to_ascii_uppercase().replace('.', "__");
        if is_named(key) || section.starts_with("[[") || table.is_empty() {
            continue;
        }
        let variable = format!("SPILE_{table}__{}", key.to_ascii_uppercase());
        for value in ["SECRET", "redis://h:1:SECRET", "SECRET@h", "[\"SECRET\"]"] {
            let value = value.replace("SECRET", SECRET);
            told += usize::from(hides_secrets("", &[(variable.clone(), value)]));
        }
    }
    assert!(keys > 50 && told > 2_000, "{keys} keys, {told} mistakes");
}

#[test]
fn a_line_with_a_misspelt_key_is_shown_without_its_value() {
    let said = explained("[admin]\ntokn = \"hunter2\"  # hunter2\n", &[]);
    assert!(said.contains("2 | tokn = \"***\"") && said.contains("token_file"), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
    let text =
        "[store]\nurl = \"htp://h.example:1/x\"\nreplicas = \"two\"\n[[rules]]\nid = \"a b\"\nplans = []\n";
    let said = explained(text, &[]);
    for shown in ["url = \"htp://h.example:1/***\"", "replicas = \"two\"", "id = \"a b\""] {
        assert!(said.contains(shown), "{shown} in {said}");
    }
}

#[test]
fn no_secret_of_a_body_or_a_reload_is_part_of_an_answer() {
    let home = Home::new(WITH_TOKEN);
    let spile = home.serve("127.0.0.1:0");
    for (path, body) in [
        ("/admin/v1/tenants/acme", r#"{"plan": "free", "tokn": "SECRET"}"#),
        ("/admin/v1/tenants/acme", r#"{"plan": "free", "apiKeys": "SECRET"}"#),
        ("/admin/v1/tenants/acme", r#"{"plan": "free", "apiKeys": ["SECRET"]}"#),
        ("/admin/v1/tenants/acme", r#"{"plan": ["SECRET"]}"#),
        ("/admin/v1/tenants/acme", r#"{"plan": "free" "SECRET"}"#),
        ("/admin/v1/plans/gold", r#"{"capacity": "SECRET", "refill": "1/s"}"#),
        ("/admin/v1/plans/gold", r#"{"capacity": 1, "refill": "1/s", "url": "https://h/SECRET"}"#),
        ("/admin/v1/rules/a", r#"{"plans": ["free"], "cost": {"SECRET": 1}}"#),
        ("/admin/v1/plans/gold", "SECRET"),
        ("/admin/v1/plans/gold", r#""SECRET""#),
    ] {
        let answer = spile.ask("admin", "PUT", path, &body.replace("SECRET", SECRET));
        assert!(answer.starts_with("HTTP/1.1 4") && !answer.contains(SECRET), "{path} {body}: {answer}");
    }
    let hook = format!("[[webhooks]]\nurl = \"htps://h.example/{SECRET}\"\n");
    home.write("spile.toml", &format!("{WITH_TOKEN}tokn = \"{SECRET}\"\n{hook}"));
    let answer = spile.ask("admin", "POST", "/admin/v1/config/reload", "");
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    let told = [answer, spile.ask("admin", "GET", "/admin/v1/store", ""), spile.log()];
    assert!(told.iter().all(|told| told.contains("tokn") && !told.contains(SECRET)), "{told:#?}");
}

#[test]
fn no_secret_is_part_of_a_configuration_that_is_written_out_for_debugging() {
    let text = "[store]\nurl = \"redis://:hunter2@h\"\n# hunter2\n\
                [observe]\notlp = \"http://h\"\notlp_headers = { x-team = \"hunter2\" }\n";
    let text = text.to_owned();
    let variables = [("SPILE_ADMIN_TOKEN".to_owned(), "hunter2".to_owned())];
    let config = Config::parse(Path::new("spile.toml"), text, variables).expect("it works");
    let written = format!("{config:?}\n{config}");
    assert!(!written.contains(PASSWORD), "{written}");
}

#[test]
fn a_line_with_a_secret_is_shown_with_its_place_in_the_file() {
    let said = explained("store = { url = \"reds://user:hunter2@h\", no_such_key = 1 }", &[]);
    let line = "1 | store = { url = \"reds://***@h\", no_such_key = *** }";
    let shown = said.lines().position(|shown| shown == line).unwrap_or_else(|| panic!("{said}"));
    let lines: Vec<&str> = said.lines().collect();
    let carets = lines[shown + 1].find('^').expect("the value is marked");
    assert!(line[carets..].starts_with("\"reds://***@h\","), "{said}");
    assert_eq!(lines[shown + 1].matches('^').count(), "\"reds://***@h\"".len(), "{said}");
    let key = said.rmatch_indices(line).next().map(|(at, _)| &said[at..]).expect("it is shown twice");
    let carets = key.lines().nth(1).and_then(|marks| marks.find('^')).expect("the key is marked");
    assert!(line[carets..].starts_with("no_such_key"), "{said}");
    // The places are those of the file as it was typed.
    for place in [" --> spile.toml:1:17\n", " --> spile.toml:1:42\n", "spile.toml:1:42: `store` has no key"] {
        assert!(said.contains(place), "{place} in {said}");
    }
}

#[test]
fn a_configuration_is_shown_without_its_secrets() {
    let home = Home::new(
        "[[routes]]\npath = \"/\"\nupstream = \"http://127.0.0.1:9\"\nrequest_headers = { set = { Authorization = \"Basic hunter2\" } }\n\
         [observe]\notlp = \"http://127.0.0.1:9\"\notlp_headers = { x-team = \"hunter2\", \"x.b\" = \"hunter2\" }\n\
         otlp_attributes = { \"service.name\" = \"edge\" }\n\
         [[webhooks]]\nurl = \"https://h.example/x?token=hunter2\"\nsecret_file = \"admin.token\"\n",
    );
    let path = home.at("spile.toml");
    let output = Process::run(&["config", "show", "--config", path.to_str().expect("its name is text")]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !shown.contains(PASSWORD), "{shown}");
    for line in [
        "https://h.example/x?token=***",
        "otlp_headers = { x-team = \"***\", \"x.b\" = \"***\" }",
        "otlp_attributes = { \"service.name\" = \"edge\" }",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    let flags = ["--config", path.to_str().expect("its name is text"), "--gateway", "127.0.0.1:0"];
    let server = Process::serve_with(&flags, &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
    let by_http = server.ask("admin", "GET", "/admin/v1/config", "");
    assert!(by_http.contains("token=***") && !by_http.contains(PASSWORD), "{by_http}");
    home.write("spile.toml", &shown);
    let again = Process::run(&["config", "show", "--config", path.to_str().expect("its name is text")]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), shown, "it is a file of its own");
}

#[test]
fn no_secret_is_part_of_what_the_command_line_says() {
    for arguments in [
        ["serve", "--store", "reds://:hunter2@h"],
        ["serve", "--store", "redis://:hunter2@"],
        ["serve", "--store", "redis://:hun'ter hunter2@"],
        ["serve", "--store", "redis://:hunter2"],
        ["serve", "--http", "http://user:hunter2@h"],
        ["serve", "--on-failure", "redis://:hunter2@h"],
        ["serve", "--no-such-flag=redis://:hunter2@h", "x"],
        ["health", "--admin", "http://user:hunter2@"],
        ["inspect", "--store=reds://:hunter2@h", "a"],
        ["serve", "--store", "hunter2@h"],
        ["serve", "--store", "h:6379:hunter2"],
        ["serve", "--store", "hunter2"],
        ["serve", "--store", "hunter2://h"],
        ["serve", "--store", "redis://h:6379:hunter2"],
        ["serve", "--store", "redis://h:6379/hunter2"],
        ["serve", "--store", "https://h.example/hunter2"],
        ["serve", "--http", "hunter2"],
        ["serve", "--on-failure", "hunter2"],
        ["serve", "--workers", "hunter2"],
        ["serve", "--log-level", "hunter2=hunter2"],
    ] {
        let output = Process::run(&arguments);
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(!output.status.success() && !said.contains(PASSWORD), "{arguments:?}: {said}");
    }
    for (name, value) in [
        ("SPILE_STORE__URL", "reds://:hunter2@h"),
        ("SPILE_LOG_FORMAT", "redis://:hunter2@h"),
        ("SPILE_CONFIG", "redis://:hunter2@h"),
        ("SPILE_STORE__URL", "h:6379:hunter2"),
        ("SPILE_STORE__URL", "hunter2@h"),
        ("SPILE_LOG_LEVEL", "hunter2=hunter2"),
        ("SPILE_STORE__REPLICAS", "hunter2"),
        ("SPILE_STORE__TOKN", "hunter2"),
    ] {
        let output = Process::run_with(&["serve"], &[(name, value)]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !said.contains(PASSWORD), "{name}: {said}");
    }
}

/// A folder with a configuration and the file of a token, which the test changes.
struct Home(TempDir);

impl Home {
    fn new(text: &str) -> Self {
        let home = Self(tempfile::tempdir().expect("a folder"));
        home.write("spile.toml", text);
        home.write("admin.token", Process::TOKEN);
        home
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).expect("the folder is ours");
    }

    fn serve(&self, admin: &str) -> Process {
        let path = self.at("spile.toml");
        Process::serve_bare(&[
            ("SPILE_CONFIG", path.to_str().expect("the folder's name is text")),
            ("SPILE_LISTEN__HTTP", "127.0.0.1:0"),
            ("SPILE_LISTEN__ADMIN", admin),
        ])
    }
}

fn refusals(spile: &Process) -> f64 {
    spile.metric("ratelimit_config_reloads_total{result=\"refused\"}").expect("reloads are counted")
}

#[test]
fn a_refused_reload_tells_no_secret_to_log_dashboard_and_operators() {
    let home = Home::new("[admin]\ntoken_file = \"admin.token\"\n");
    let spile = home.serve("127.0.0.1:0");
    home.write(
        "spile.toml",
        "[admin]\ntoken_file = \"admin.token\"\n[store]\nurl = \"reds://:hunter2@h:6379\"\n",
    );
    wait::until_true("a refusal", || refusals(&spile) > 0.5);
    spile.until_logged("`reds:` names no store");
    let told = ["/dashboard/snapshot", "/admin/v1/store"].map(|path| spile.ask("admin", "GET", path, ""));
    for told in told.iter().chain([&spile.log()]) {
        assert!(told.contains("reds://***@h:6379") && !told.contains(PASSWORD), "{told}");
    }
    let gauge = || spile.metric("ratelimit_config_refused{source=\"file\"}");
    assert_eq!(gauge(), Some(1.0), "it stays for as long as the file is refused");
    home.write("spile.toml", "[admin]\ntoken_file = \"admin.token\"\n");
    wait::until_true("the file is well again", || gauge() == Some(0.0));
}

#[test]
fn an_admin_listener_never_loses_its_token() {
    for address in ["127.0.0.1:0", "0.0.0.0:0"] {
        let home = Home::new(WITH_TOKEN);
        let spile = home.serve(address);
        let closed = || {
            for path in ["/dashboard/snapshot", "/dashboard/buckets", "/admin/v1/plans"] {
                let answer = spile.ask_with("admin", "GET", path, &[], "");
                assert!(answer.starts_with("HTTP/1.1 401"), "{address} {path}: {answer}");
            }
        };
        closed();
        let mut refused = 0.0;
        for (name, text) in [
            ("admin.token", None),
            ("admin.token", Some("")),
            ("admin.token", Some(" \n")),
            ("spile.toml", Some("[admin]\ntoken_file = \"elsewhere.token\"\n")),
            ("spile.toml", Some("")),
        ] {
            match text {
                Some(text) => home.write(name, text),
                None => fs::remove_file(home.at(name)).expect("the folder is ours"),
            }
            spile.send(Signal::HUP);
            wait::until_true("the reload is refused", || refusals(&spile) > refused + 0.5);
            refused = refusals(&spile);
            closed();
            home.write("spile.toml", WITH_TOKEN);
            home.write("admin.token", Process::TOKEN);
        }
        let missing = home.at("admin.token");
        spile.until_logged(&format!("the token cannot be read from {}", missing.display()));
        spile.until_logged("elsewhere.token");
    }
}

#[test]
fn a_server_does_not_start_without_the_token_that_its_file_should_hold() {
    let home = Home::new(WITH_TOKEN);
    let path = home.at("spile.toml");
    let path = path.to_str().expect("the folder's name is text");
    for token in [None, Some(""), Some("\n")] {
        match token {
            Some(token) => home.write("admin.token", token),
            None => fs::remove_file(home.at("admin.token")).expect("the folder is ours"),
        }
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            for command in [&["serve"][..], &["config", "check"]] {
                let flags = ["--config", path, "--http", "127.0.0.1:0", "--admin", address];
                let output = Process::run(&[command, &flags[..]].concat());
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(!output.status.success() && said.contains("admin.token"), "{command:?}: {said}");
            }
        }
    }
}
