//! Dependencies point at `core`, and `core` touches nothing outside. Read from cargo itself, so that a new
//! dependency in the wrong place fails here and says why.

use std::collections::BTreeSet;
use std::process::Command;

/// What each crate may use of the workspace; what is not named here may be used by nobody.
const LAYERS: &[(&str, &[&str])] = &[
    ("spile-core", &[]),
    ("spile-memory", &["spile-core"]),
    ("spile-redis", &["spile-core"]),
    ("spile-limiter", &["spile-core", "spile-memory"]),
    ("spile-tower", &["spile-core", "spile-limiter"]),
    ("spile-macros", &[]),
];

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
