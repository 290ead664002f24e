//! The description of both listeners, against what they do.

use http::Method;
use serde_json::{Map, Value};

use crate::support::{Office, Process};

const METHODS: [Method; 8] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
    Method::TRACE,
];

#[tokio::test]
async fn the_description_is_served_as_it_is_printed_to_whoever_reaches_the_admin_listener() {
    let office = Office::open().await;
    let served =
        office.spile.admin("/openapi.json").await.is(200).carries("content-type", "application/json");
    assert_eq!(served.text.as_bytes(), printed().as_bytes());
    assert_eq!(served.json()["openapi"], "3.1.0");
}

#[tokio::test]
async fn every_path_takes_the_methods_that_are_described_and_no_others() {
    let office = Office::open().await;
    let (http, admin) = (office.spile.http, office.spile.admin);
    for (path, item) in described() {
        let listener = if item.contains_key("servers") { http } else { admin };
        // Names that nothing has, so that nothing changes.
        let target = path.replace(['{', '}'], "");
        for method in METHODS {
            // A stream of events never ends, and cannot be waited for here.
            if path == "/dashboard/events" && [Method::GET, Method::HEAD].contains(&method) {
                continue;
            }
            let is_described = item.contains_key(method.as_str().to_ascii_lowercase().as_str())
                // What can be got can be asked about.
                || (method == Method::HEAD && item.contains_key("get"));
            let answer = office.send_to(listener, method.clone(), &target).await;
            let is_served =
                answer.status != 405 && (answer.status != 404 || is_about_the_name(&answer.text, &method));
            assert_eq!(is_served, is_described, "{method} {path}: {answer:#?}");
        }
    }
}

#[test]
fn everything_that_is_described_says_who_may_and_what_comes_back() {
    for (path, item) in described() {
        for (method, operation) in item.iter().filter(|(key, _)| *key != "servers") {
            let name = format!("{method} {path}");
            let guarded = operation.get("security").is_some();
            assert_eq!(guarded, path.starts_with("/admin/") || path.starts_with("/dashboard/"), "{name}");
            assert!(
                operation["summary"].is_string() || operation["description"].is_string(),
                "{name} has no summary"
            );
            let responses = operation["responses"].as_object().expect("an operation has responses");
            assert!(responses.keys().any(|status| status.starts_with('2')), "{name} never succeeds");
            assert!(!guarded || responses.contains_key("403"), "{name}");
        }
    }
}

#[test]
fn every_operation_has_an_id_of_its_own() {
    let mut ids = std::collections::BTreeSet::new();
    for (path, item) in described() {
        for (method, operation) in item.iter().filter(|(key, _)| *key != "servers") {
            let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
            assert!(!id.is_empty(), "{method} {path} has no id");
            assert!(ids.insert(id.clone()), "{method} {path}: another operation has the id {id} too");
        }
    }
}

/// The document that `spile openapi` prints.
pub(super) fn printed() -> String {
    let output = Process::run(&["openapi"]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("JSON is UTF-8")
}

/// Nothing has the name: there is a path, but nothing at its end.
fn is_about_the_name(problem: &str, method: &Method) -> bool {
    // An answer to HEAD has no body to tell the two apart by.
    *method == Method::HEAD || problem.contains("\"field\"")
}

fn described() -> Vec<(String, Map<String, Value>)> {
    let document: Value = serde_json::from_str(&printed()).expect("it is JSON");
    let paths = document["paths"].as_object().expect("it has paths").clone();
    let item = |item: Value| item.as_object().expect("a path has methods").clone();
    paths.into_iter().map(|(path, methods)| (path, item(methods))).collect()
}
