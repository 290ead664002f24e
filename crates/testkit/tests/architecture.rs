//! Dependencies point at `core`, and `core` touches nothing outside. Read from cargo itself, so that a new
//! dependency in the wrong place fails here and says why.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What each crate may use of the workspace; what is not named here may be used by nobody.
const LAYERS: &[(&str, &[&str])] = &[
    ("spile-core", &[]),
    ("spile-memory", &["spile-core"]),
    ("spile-resp", &[]),
    ("spile-redis", &["spile-core", "spile-resp"]),
    ("spile-policy", &["spile-core"]),
    ("spile-limiter", &["spile-core", "spile-memory", "spile-policy"]),
    ("spile-tower", &["spile-core", "spile-limiter", "spile-policy"]),
    ("spile-macros", &[]),
    ("spile-observe", &["spile-core", "spile-limiter"]),
    ("spile-listener", &["spile-core"]),
    (
        "spile-gateway",
        &["spile-core", "spile-limiter", "spile-listener", "spile-observe", "spile-policy", "spile-tower"],
    ),
    ("spile", &["spile-core", "spile-limiter", "spile-macros", "spile-memory", "spile-redis", "spile-tower"]),
    (
        "spile-server",
        &[
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
];

/// The doors: they turn bytes into facts and decisions into bytes.
const DOORS: &[&str] = &["gateway", "server", "tower"];

/// What makes charges. Only the policy, the limiter and the stores below them do.
const MAKES_CHARGES: &[&str] = &["Charge::new(", "Charges::new(", "Charges::one("];

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
fn each_layer_uses_only_the_layers_below_it() {
    for (layer, allowed) in LAYERS {
        let used: BTreeSet<String> =
            direct(layer).into_iter().filter(|name| name.starts_with("spile")).collect();
        let allowed: BTreeSet<String> = allowed.iter().map(ToString::to_string).collect();
        let forbidden: Vec<_> = used.difference(&allowed).collect();
        assert!(forbidden.is_empty(), "{layer} must not use {forbidden:?}");
    }
}

#[test]
fn the_core_is_free_of_io() {
    let used = all("spile-core");
    let outside: Vec<_> = OUTSIDE.iter().filter(|name| used.contains(**name)).collect();
    assert!(
        outside.is_empty(),
        "spile-core reaches {outside:?}: keep I/O, runtimes and wire formats out of the domain"
    );
    assert!(used.contains("thiserror"), "the list was read at all");
}

#[test]
fn the_policy_is_free_of_io_and_of_servers() {
    let used = all("spile-policy");
    // The types of HTTP are how facts are told; a server, a client or a runtime is not.
    let outside: Vec<_> = OUTSIDE.iter().filter(|name| **name != "http" && used.contains(**name)).collect();
    assert!(outside.is_empty(), "spile-policy reaches {outside:?}");
}

#[test]
fn no_door_makes_charges_itself() {
    for door in DOORS {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        for (path, text) in sources(&Path::new(folder).join(door).join("src")) {
            // Tests within a file may put together what they like.
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let made: Vec<_> = MAKES_CHARGES.iter().filter(|call| code.contains(**call)).collect();
            assert!(made.is_empty(), "{} has {made:?}: ask the policy what is owed", path.display());
        }
    }
}

/// Every file of Rust below a folder.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).expect("a readable file");
            found.push((path, text));
        }
    }
    found
}

fn direct(package: &str) -> BTreeSet<String> {
    tree(package, "1")
}

fn all(package: &str) -> BTreeSet<String> {
    tree(package, "64")
}

/// The names that `cargo tree` shows below a package, without what only its tests or build use.
fn tree(package: &str, depth: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--package",
            package,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--depth",
            depth,
        ])
        .args(["--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo speaks UTF-8");
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != package).map(ToOwned::to_owned).collect()
}
