//! What is shipped to run Spile: linted, and run here as it is run there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use spile_testkit::wait;

use crate::support::{NOBODY, Process};

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
    assert!(services.values().all(|service| service["restart"] == "unless-stopped"), "each is restarted");
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
fn the_debian_package_has_what_it_names_and_a_configuration_that_works() {
    let manifest: toml::Table = read("crates/server/Cargo.toml").parse().expect("it is TOML");
    let deb = &manifest["package"]["metadata"]["deb"];
    let assets = deb["assets"].as_array().expect("a list");
    let sources = assets.iter().map(|asset| asset[0].as_str().expect("a path"));
    let units = deb["systemd-units"]["unit-scripts"].as_str().expect("a folder");
    // What is built is there after a build.
    for source in sources.filter(|source| !source.contains("target/")).chain([units]) {
        assert!(root().join("crates/server").join(source).exists(), "{source}");
    }
    let config = root().join("deploy/debian/spile.toml");
    let checked = Process::run(&["config", "check", config.to_str().expect("text")]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let unit = read("deploy/systemd/spile.service");
    assert!(unit.contains("StateDirectory=spile"), "where the configuration keeps its state");
}

#[test]
fn a_new_user_meets_the_first_429_within_ten_seconds() {
    run("bench/first-429/run", &[env!("CARGO_BIN_EXE_spile")]);
}

/// What the chart makes of its values with these changes.
fn rendered(changes: &str) -> String {
    run(".cache/helm/helm", &["template", "spile", "deploy/helm/spile", "--set", changes])
}

/// Everything that the chart can make.
const ALL_OF_IT: &str = "autoscaling.enabled=true,podMonitor.enabled=true,networkPolicy.enabled=true,\
                         listen.grpc=true,listen.resp=true,listen.gateway=true";

#[test]
fn helm_takes_the_chart_and_refuses_values_that_it_does_not_have() {
    run(".cache/helm/helm", &["lint", "--strict", "deploy/helm/spile"]);
    let typo = ["template", "spile", "deploy/helm/spile", "--set", "listen.gprc=true"];
    let refused = Command::new(root().join(".cache/helm/helm")).args(typo).current_dir(root()).output();
    let said = String::from_utf8_lossy(&refused.expect("helm runs").stderr).into_owned();
    assert!(said.contains("gprc"), "{said}");
}

#[test]
fn the_manifests_are_what_the_chart_makes_of_its_own_values() {
    let file = read("deploy/kubernetes/spile.yaml");
    let (_, manifests) = file.split_once("---\n").expect("it begins with a comment");
    let chart = rendered("replicas=3");
    assert_eq!(
        manifests.trim(),
        chart.trim().trim_start_matches("---\n"),
        "helm template spile deploy/helm/spile >> deploy/kubernetes/spile.yaml"
    );
}

#[test]
fn kubernetes_takes_the_manifests_and_spile_takes_their_file_and_variables() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.yaml");
    for (changes, instances) in [("replicas=5", "5"), (ALL_OF_IT, "10")] {
        let all = rendered(changes);
        // The operator of Prometheus brings this kind along.
        let (monitors, known): (Vec<&str>, Vec<&str>) =
            all.split("---\n").partition(|document| document.contains("kind: PodMonitor"));
        assert_eq!(monitors.len(), usize::from(changes == ALL_OF_IT));
        fs::write(&path, known.join("---\n")).expect("the folder is ours");
        let path = path.to_str().expect("text");
        run(".cache/lint/bin/kubernetes-validate", &["--strict", path]);
        let documents = yamls(path);
        let of =
            |kind: &str| documents.iter().find(|document| document["kind"] == kind).expect("it is there");
        let config = folder.path().join("spile.toml");
        fs::write(&config, of("ConfigMap")["data"]["spile.toml"].as_str().expect("a file"))
            .expect("the folder is ours");
        let container = &of("Deployment")["spec"]["template"]["spec"]["containers"][0];
        let variables = container["env"].as_array().expect("a list");
        let secret =
            |name: &str| if name == "SPILE_STORE__URL" { "redis://redis:6379" } else { Process::TOKEN };
        let variables: Vec<(&str, &str)> = variables
            .iter()
            .map(|variable| (&variable["name"], &variable["value"]))
            .map(|(name, value)| (name.as_str().expect("a name"), value))
            .map(|(name, value)| (name, value.as_str().unwrap_or_else(|| secret(name))))
            .collect();
        assert!(variables.contains(&("SPILE_STORE__REPLICAS", instances)), "{variables:?}");
        let checked = Process::run_with(&["config", "check", config.to_str().expect("text")], &variables);
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let ports = container["ports"].as_array().expect("a list").len();
        let listeners = variables.iter().filter(|(name, _)| name.starts_with("SPILE_LISTEN__")).count();
        assert_eq!(ports, listeners);
        assert_eq!(
            of("Service")["spec"]["ports"].as_array().expect("a list").len(),
            ports - 1,
            "not the admin's"
        );
    }
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

#[test]
fn systemd_understands_the_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    // It looks whether the programs are there.
    let unit = read("deploy/systemd/spile.service").replace("/usr/bin/spile", env!("CARGO_BIN_EXE_spile"));
    let path = folder.path().join("spile.service");
    fs::write(&path, unit).expect("the folder is ours");
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
    let verified =
        verified.unwrap_or_else(|why| panic!("systemd-analyze: {why}; the package `systemd` has it"));
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(!said.contains("spile.service"), "{said}");
}

#[test]
fn what_systemd_hands_over_is_what_spile_reads() {
    let unit = read("deploy/systemd/spile.service");
    let values =
        |key: &'static str| unit.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='));
    assert!(values("DynamicUser").any(|value| value == "yes"), "such a user reads no file of root's");
    // The lines that the comment at the top has an operator add.
    let added = |key: &'static str| {
        let lines = unit.lines().filter_map(|line| line.strip_prefix("#   "));
        lines.filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
    };
    let folder = tempfile::tempdir().expect("a folder");
    let credentials: Vec<&str> =
        added("LoadCredential").map(|value| value.split(':').next().unwrap_or_default()).collect();
    assert!(!credentials.is_empty());
    let environment: Vec<(&str, String)> = added("Environment")
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, value.replace("%d", folder.path().to_str().expect("text"))))
        .collect();
    let given: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let is_closed = |given: &[(&str, &str)]| {
        let spile = Process::serve_with(&[], given);
        let answer = spile.ask("admin", "GET", "/admin/v1/plans", "");
        !answer.starts_with("HTTP/1.1 200")
    };
    assert!(is_closed(&[]), "without a token it starts, and the admin API is closed");
    for credential in credentials {
        assert!(unit.contains(&format!("%d/{credential}")), "{credential} is used");
        fs::write(folder.path().join(credential), Process::TOKEN).expect("the folder is ours");
    }
    assert!(!is_closed(&given), "the token is the one in the credential");
}

#[test]
fn a_stop_fits_into_the_time_that_systemd_kubernetes_and_compose_give() {
    // Draining, and what remains to be written afterwards.
    let stop = spile_server::Config::default().listen.bounds.drain.as_secs() + 10;
    let unit = read("deploy/systemd/spile.service");
    let seconds = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).expect("it is said");
    assert!(seconds.parse::<u64>().expect("seconds") > stop, "systemd: {seconds}");
    let compose = yaml("deploy/compose.yaml");
    let grace = compose["services"]["spile"]["stop_grace_period"].as_str().expect("it is said");
    assert!(humantime::parse_duration(grace).expect("a span").as_secs() > stop, "compose: {grace}");
    let pod = pod();
    let waits =
        pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().expect("it is said");
    let grace = pod["terminationGracePeriodSeconds"].as_u64().expect("it is said");
    assert!(grace > stop + waits, "Kubernetes: {grace}");
}

#[test]
fn spile_is_restarted_when_it_hangs_and_not_when_redis_is_away() {
    let spile = &pod()["containers"][0];
    for (probe, path) in
        [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
    {
        assert_eq!(spile[probe]["httpGet"]["path"], path, "{probe}");
    }
    let dockerfile = read("deploy/docker/Dockerfile");
    let line = dockerfile.lines().find(|line| line.starts_with("HEALTHCHECK")).expect("there is one");
    let (_, check) = line.split_once("CMD ").expect("a command");
    let check = texts(&serde_json::from_str(check).expect("a list"));
    let check: Vec<&str> = check[1..].iter().map(String::as_str).collect();
    let spile = Process::serve(&["--store", NOBODY, "--on-failure", "deny"]);
    let admin = format!("http://{}", spile.address("admin"));
    wait::until_true("it is not ready", || {
        Process::run_with(&["health"], &[("SPILE_ADMIN", &admin)]).status.code() == Some(2)
    });
    let healthy = Process::run_with(&check, &[("SPILE_ADMIN", &admin)]);
    assert_eq!(healthy.status.code(), Some(0), "{}", String::from_utf8_lossy(&healthy.stderr));
}

/// What runs in Kubernetes.
fn pod() -> Value {
    let documents = yamls("deploy/kubernetes/spile.yaml");
    let deployment = documents.iter().find(|document| document["kind"] == "Deployment");
    deployment.expect("there is one")["spec"]["template"]["spec"].clone()
}
