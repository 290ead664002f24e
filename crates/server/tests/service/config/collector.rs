//! What the collector of traces is sent along with spans: from the file, from a file of secrets, and from OpenTelemetry's
//! own variables.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use spile_server::Config;
use spile_testkit::otlp::{Collector, Export};
use tempfile::TempDir;

use crate::support::Process;

/// Starts a server with this in `[observe]`, asks it once, and returns what the collector got.
async fn exported(collector: &mut Collector, observe: &str, variables: &[(&str, &str)]) -> Export {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder, "headers", "# of the vendor\nx-team: hunter2\n\nAuthorization:  Bearer a:b \n");
    let file = format!("[observe]\notlp = \"{}\"\n{observe}\n", collector.endpoint);
    let path = write(&folder, "spile.toml", &file);
    let process = Process::serve_with(&["--config", &path], variables);
    process.ask("http", "POST", "/v1/check", r#"{"ruleId":"default","identity":"a"}"#);
    let export = collector.next().await;
    let (_, log) = process.end_by(Signal::TERM);
    assert!(!log.contains("hunter2"), "{log}");
    export
}

fn write(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).expect("the folder is ours");
    path.to_str().expect("its name is text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn header_fields_come_from_the_table_and_from_a_file_of_secrets() {
    let mut collector = Collector::start().await;
    let observe = "otlp_headers = { x-scope-orgid = \"games\" }\notlp_headers_file = \"headers\"";
    let variables = [("OTEL_EXPORTER_OTLP_HEADERS", "x-other=1")];
    let export = exported(&mut collector, observe, &variables).await;
    for (name, value) in [("x-scope-orgid", "games"), ("x-team", "hunter2"), ("authorization", "Bearer a:b")]
    {
        assert_eq!(export.headers[name], value);
    }
    assert!(!export.headers.contains_key("x-other"), "the file says which fields there are");
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_opentelemetry_count_where_the_file_says_nothing() {
    let mut collector = Collector::start().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=hunter2,authorization=Basic%20aGk="),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.name=other,deployment.environment.name=test,service.namespace=a%2Cb",
        ),
        ("OTEL_SERVICE_NAME", "edge"),
    ];
    let observe = "otlp_attributes = { \"service.namespace\" = \"games\" }";
    let export = exported(&mut collector, observe, &variables).await;
    assert_eq!(
        (&export.headers["x-team"], &export.headers["authorization"]),
        (&"hunter2".parse().unwrap(), &"Basic aGk=".parse().unwrap())
    );
    for (name, value) in [
        ("service.name", "\"edge\""),
        ("deployment.environment.name", "\"test\""),
        ("service.namespace", "\"games\""),
    ] {
        assert_eq!(export.resource(name).as_deref(), Some(value));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_spile_override_the_file() {
    let mut collector = Collector::start().await;
    let variables = [
        ("SPILE_OBSERVE__OTLP_HEADERS", "x-team=hunter2"),
        ("SPILE_OBSERVE__OTLP_ATTRIBUTES", "service.name=edge"),
    ];
    let observe = "otlp_headers = { x-old = \"a\" }\notlp_attributes = { \"service.name\" = \"old\" }";
    let export = exported(&mut collector, observe, &variables).await;
    assert_eq!(export.headers["x-team"], "hunter2");
    assert!(!export.headers.contains_key("x-old"));
    assert_eq!(export.resource("service.name").as_deref(), Some("\"edge\""));
}

#[test]
fn header_fields_that_change_wait_for_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder, "headers", "x-team: one\n");
    let file = "[observe]\notlp = \"http://127.0.0.1:9\"\notlp_headers_file = \"headers\"\n";
    let path = write(&folder, "spile.toml", file);
    let process = Process::serve_with(&["--config", &path], &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
    let reload = || process.ask("admin", "POST", "/admin/v1/config/reload", "");
    assert!(reload().contains("\"needsRestart\":[]"), "nothing has changed");
    write(&folder, "headers", "x-team: two\n");
    let answer = reload();
    assert!(answer.contains("\"needsRestart\":[\"observe.otlp\"]"), "{answer}");
}

#[test]
fn what_is_wrong_with_a_header_is_told_with_its_name_and_place() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder, "headers", "x-team: a\nno colon\nX-Team: hunter2\nhost: hunter2\n");
    let path = folder.path().join("spile.toml");
    for (observe, variable, messages) in [
        (
            "otlp_headers = { \"x team\" = \"hunter2\", authorization = \"\", content-type = \"hunter2\" }",
            None,
            &[
                "spile.toml:3:29: `x team` is not a header name; names as in `authorization`",
                "the header `authorization` is empty",
                "the header `content-type` is set by Spile itself",
            ][..],
        ),
        (
            "otlp_headers = { a = \"hunter2\\u0007\" }",
            None,
            &["the value of the header `a` has a sign that is not visible ASCII"],
        ),
        (
            "otlp_headers = { a = 1 }",
            None,
            &["`observe.otlp_headers.a` is a whole number; this takes text in quotes"],
        ),
        (
            "otlp_headers_file = \"headers\"",
            None,
            &[
                "line 2 of the header fields has no colon",
                "the header `x-team` is defined twice",
                "the header `host` is set by Spile itself",
            ],
        ),
        ("otlp_headers_file = \"missing\"", None, &["the header fields cannot be read"]),
        (
            "",
            Some(("OTEL_EXPORTER_OTLP_HEADERS", "a=b,hunter2")),
            &["OTEL_EXPORTER_OTLP_HEADERS: item 2 has no name; `name=value`"],
        ),
        (
            "",
            Some(("OTEL_EXPORTER_OTLP_HEADERS", "x y=hunter2")),
            &["OTEL_EXPORTER_OTLP_HEADERS: `x y` is not a header name"],
        ),
        (
            "",
            Some(("OTEL_RESOURCE_ATTRIBUTES", "hunter2")),
            &["OTEL_RESOURCE_ATTRIBUTES: item 1 has no name"],
        ),
        (
            "",
            Some(("SPILE_OBSERVE__OTLP_HEADERS", "te=hunter2")),
            &["SPILE_OBSERVE__OTLP_HEADERS: the header `te` is set"],
        ),
        ("otlp_attributes = { \"\" = \"a\" }", None, &["an attribute has a name of 0 bytes; 1 to 255 bytes"]),
    ] {
        let text = format!("[observe]\notlp = \"http://127.0.0.1:4318\"\n{observe}\n");
        let variables = variable.map(|(name, value): (&str, &str)| (name.to_owned(), value.to_owned()));
        let why = Config::parse(&path, text, variables).expect_err("it is wrong");
        let said = format!("{}\n{why}", why.lines().collect::<Vec<_>>().join("\n"));
        for message in messages {
            assert!(said.contains(message), "{message} in {said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_variable_of_opentelemetry_does_not_matter_where_nothing_is_traced() {
    let variables = [("OTEL_EXPORTER_OTLP_HEADERS".to_owned(), "nonsense".to_owned())];
    Config::parse(Path::new("spile.toml"), String::new(), variables).expect("it works");
}

#[test]
fn header_fields_that_go_over_the_network_in_clear_are_worth_a_warning() {
    let warned = |otlp: &str| {
        let text = format!("[observe]\notlp = \"{otlp}\"\notlp_headers = {{ x-team = \"hunter2\" }}\n");
        let config = Config::parse(Path::new("spile.toml"), text, []).expect("it works");
        config.warnings().iter().any(|warning| warning.contains("observe.otlp"))
    };
    assert!(warned("http://collector.example:4318") && warned("http://10.0.0.1:4318"));
    for safe in
        ["https://collector.example", "http://127.0.0.1:4318", "http://[::1]:4318", "http://localhost:4318"]
    {
        assert!(!warned(safe), "{safe}");
    }
}
