//! What is shipped to run Spile: linted, and run here as it is run there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::Process;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// Runs a program that `scripts/install-test-deps` installs, and hands back what it says.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(root().join(program)).args(arguments).current_dir(root()).output();
    let output =
        output.unwrap_or_else(|why| panic!("{program}: {why}; scripts/install-test-deps installs it"));
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
    said
}

/// A YAML file as JSON.
fn yaml(path: &str) -> Value {
    yamls(path).swap_remove(0)
}

/// A YAML file of several documents, each as JSON.
fn yamls(path: &str) -> Vec<Value> {
    let script = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
    let said = run(".cache/lint/bin/python", &["-c", script, path]);
    serde_json::from_str(&said).unwrap_or_else(|why| panic!("{path}: {why}: {said}"))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

#[test]
fn the_dockerfile_has_nothing_to_complain_about() {
    run(".cache/hadolint/hadolint", &["--no-color", "deploy/docker/Dockerfile"]);
}

#[test]
fn the_compose_file_is_what_compose_reads() {
    run(
        ".cache/lint/bin/check-jsonschema",
        &["--builtin-schema", "vendor.compose-spec", "deploy/compose.yaml"],
    );
}

#[test]
fn the_compose_file_names_files_that_are_there() {
    let compose = yaml("deploy/compose.yaml");
    let build = &compose["services"]["spile"]["build"];
    let context = root().join("deploy").join(build["context"].as_str().expect("a context"));
    assert!(context.join(build["dockerfile"].as_str().expect("a Dockerfile")).exists());
    let services = compose["services"].as_object().expect("there are services");
    let volumes = services.values().flat_map(|service| texts(&service["volumes"]));
    for volume in volumes {
        let (here, _) = volume.split_once(':').expect("a volume has two sides");
        let is_named = compose["volumes"].as_object().is_some_and(|named| named.contains_key(here));
        assert!(is_named || root().join("deploy").join(here).is_dir(), "{volume}");
    }
    let scraped = yaml("deploy/prometheus/prometheus.yml");
    for rules in texts(&scraped["rule_files"]) {
        assert!(root().join("deploy/prometheus").join(&rules).exists(), "{rules}");
    }
    let target = &scraped["scrape_configs"][0]["static_configs"][0]["targets"][0];
    assert_eq!(target, "spile:8081", "the service and the port that the image exposes");
}

#[test]
fn grafana_finds_its_dashboards_and_their_source() {
    let provider = &yaml("deploy/grafana/provisioning/dashboards/spile.yml")["providers"][0];
    let source = &yaml("deploy/grafana/provisioning/datasources/prometheus.yml")["datasources"][0];
    let grafana = yaml("deploy/compose.yaml")["services"]["grafana"].clone();
    let mounted = texts(&grafana["volumes"]);
    let folder = provider["options"]["path"].as_str().expect("a folder");
    assert!(mounted.iter().any(|volume| volume.contains(&format!("/dashboards:{folder}:"))), "{mounted:?}");
    let dashboard = read("deploy/grafana/dashboards/spile.json");
    let uid = source["uid"].as_str().expect("the source has a uid");
    assert!(dashboard.contains(&format!("\"{uid}\"")), "the dashboard asks {uid}");
    assert_eq!(source["url"], "http://prometheus:9090", "the service of the compose file");
}

/// What the image sets and runs, run here: its variables, its command and its health check.
#[test]
fn what_the_image_runs_works() {
    let dockerfile = read("deploy/docker/Dockerfile");
    let line = |word: &str| {
        let line = dockerfile.lines().rev().find_map(|line| line.strip_prefix(word));
        line.unwrap_or_else(|| panic!("{word} in the Dockerfile")).trim()
    };
    let words = |json: &str| texts(&serde_json::from_str(json).unwrap_or_else(|why| panic!("{why}: {json}")));
    assert_eq!(
        (words(line("ENTRYPOINT")), words(line("CMD"))),
        (vec!["/spile".into()], vec!["serve".into()])
    );
    let mut variables: Vec<(&str, String)> = line("ENV")
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        // Ports of the image would be in the way of others here.
        .map(|(name, value)| (name, value.replace(":8080", ":0").replace(":8081", ":0")))
        .collect();
    variables.push(("SPILE_ADMIN_TOKEN", Process::TOKEN.to_owned()));
    let given: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let spile = Process::serve_bare(&given);
    let admin = format!("http://{}", spile.address("admin").replace("0.0.0.0", "127.0.0.1"));

    let (_, check) = line("HEALTHCHECK").split_once("CMD ").expect("a command");
    let check = words(check);
    assert_eq!(check[0], "/spile");
    let check: Vec<&str> = check[1..].iter().map(String::as_str).collect();
    let healthy = Process::run_with(&check, &[("SPILE_ADMIN", &admin)]);
    assert!(healthy.status.success(), "{}", String::from_utf8_lossy(&healthy.stderr));
    drop(spile);
    let gone = Process::run_with(&check, &[("SPILE_ADMIN", &admin)]);
    assert_eq!(gone.status.code(), Some(2));
}

#[test]
fn kubernetes_takes_the_manifests_and_spile_takes_their_file() {
    let manifests = "deploy/kubernetes/spile.yaml";
    run(".cache/lint/bin/kubernetes-validate", &["--strict", manifests]);
    let documents = yamls(manifests);
    let of = |kind: &str| documents.iter().find(|document| document["kind"] == kind).expect("it is there");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("spile.toml");
    let file = of("ConfigMap")["data"]["spile.toml"].as_str().expect("a file");
    fs::write(&config, file).expect("the folder is ours");
    let checked = Process::run(&["config", "check", config.to_str().expect("text")]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let replicas = format!("replicas = {}", of("Deployment")["spec"]["replicas"]);
    assert!(file.contains(&replicas), "{replicas} in {file}");
}

#[test]
fn systemd_runs_commands_that_exist() {
    let unit = read("deploy/systemd/spile.service");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("spile.toml");
    fs::write(&config, Process::run(&["config", "init"]).stdout).expect("the folder is ours");
    let config = config.to_str().expect("text");
    let command = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix("=/usr/bin/spile "));
        let line =
            line.unwrap_or_else(|| panic!("{key} runs spile")).replace("/etc/spile/spile.toml", config);
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let check = command("ExecStartPre");
    let check: Vec<&str> = check.iter().map(String::as_str).collect();
    assert!(Process::run(&check).status.success());
    let start = command("ExecStart");
    assert_eq!(start[0], "serve");
    let flags: Vec<&str> = start[1..].iter().map(String::as_str).collect();
    assert!(Process::serve(&flags).ask("admin", "GET", "/readyz", "").starts_with("HTTP/1.1 200"));
}
