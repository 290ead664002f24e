//! What `cargo deny check bans licenses sources` checks, by the same deny.toml. cargo-deny itself is not a prebuilt package,
//! and building it takes longer than the tests of the workspace. Advisories need the network and are left to it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The parts of deny.toml that are used. A part that these tests do not know fails, so that none is forgotten.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DenyFile {
    graph: Graph,
    licenses: Licenses,
    #[serde(rename = "advisories")]
    _advisories: toml::Table,
    sources: Sources,
    bans: Bans,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Graph {
    all_features: bool,
    targets: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_registry: String,
    unknown_git: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    multiple_versions: String,
    wildcards: String,
    allow_wildcard_paths: bool,
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
    /// The only crates that may use it directly.
    #[serde(default)]
    wrappers: Vec<String>,
}

/// Cargo.lock: everything that any platform and feature could need.
#[derive(Deserialize)]
struct LockFile {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    source: Option<String>,
}

#[test]
fn every_licence_is_one_that_is_allowed() {
    let DenyFile { graph, licenses, .. } = deny_file();
    let allowed: Vec<Licensee> = licenses
        .allow
        .iter()
        .map(|name| Licensee::parse(name).unwrap_or_else(|why| panic!("deny.toml allows {name}: {why}")))
        .collect();
    let packages = graph.targets.iter().flat_map(|target| licences(target, graph.all_features));
    let packages: BTreeMap<String, String> = packages.collect();
    assert!(packages.len() > 100, "the list was read at all: {packages:?}");
    let forbidden = packages.iter().filter(|(_, licence)| {
        // Crates from before SPDX write `MIT/Apache-2.0`.
        let licence = Expression::parse_mode(licence, ParseMode::LAX);
        !licence.is_ok_and(|licence| {
            licence.evaluate(|needed| allowed.iter().any(|licensee| licensee.satisfies(needed)))
        })
    });
    let forbidden: Vec<_> = forbidden.collect();
    assert!(forbidden.is_empty(), "deny.toml does not allow {forbidden:#?}");
}

#[test]
fn every_crate_comes_from_crates_io() {
    let Sources { unknown_registry, unknown_git } = deny_file().sources;
    assert_eq!([unknown_registry, unknown_git], ["deny", "deny"]);
    for Locked { name, version, source } in lock_file().package {
        assert!(
            source.as_ref().is_none_or(|source| source == CRATES_IO),
            "{name} {version} comes from {source:?}"
        );
    }
}

#[test]
fn no_crate_is_used_that_is_banned() {
    let DenyFile { graph, bans, .. } = deny_file();
    for target in &graph.targets {
        let used = tree(target, graph.all_features, &["--format", "{p}"]);
        for Ban { name, reason, wrappers } in &bans.deny {
            if names(&used).all(|used| used != name) {
                continue;
            }
            let users =
                tree(target, graph.all_features, &["--format", "{p}", "--depth", "1", "--invert", name]);
            let users: Vec<_> =
                names(&users).skip(1).filter(|user| !wrappers.iter().any(|it| it == user)).collect();
            assert!(users.is_empty(), "{users:?} must not use {name}: {reason}");
        }
    }
}

#[test]
fn every_dependency_says_which_version_it_needs() {
    let Bans { multiple_versions, wildcards, allow_wildcard_paths, .. } = deny_file().bans;
    assert_eq!(
        (multiple_versions.as_str(), wildcards.as_str(), allow_wildcard_paths),
        ("allow", "deny", true)
    );
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let metadata: serde_json::Value = serde_json::from_str(&cargo(&arguments)).expect("cargo writes JSON");
    for package in metadata["packages"].as_array().expect("a list of packages") {
        for dependency in package["dependencies"].as_array().expect("a list of dependencies") {
            let wildcard = dependency["req"] == "*" && dependency["path"].is_null();
            assert!(!wildcard, "{} needs any version of {}", package["name"], dependency["name"]);
        }
    }
}

/// The packages that are built for a target, by name and version, with their licences.
fn licences(target: &str, all_features: bool) -> Vec<(String, String)> {
    let split = |line: &str| {
        let (package, licence) = line.split_once('\t').expect("two columns");
        (package.to_owned(), licence.trim_end_matches(" (*)").to_owned())
    };
    // An empty line parts the members.
    let tree = tree(target, all_features, &["--format", "{p}\t{l}"]);
    tree.lines().filter(|line| !line.is_empty()).map(split).collect()
}

/// What `cargo tree` shows of everything that is built for a target, tests and build scripts too.
fn tree(target: &str, all_features: bool, more: &[&str]) -> String {
    let mut arguments = vec!["tree", "--workspace", "--locked", "--edges", "normal,build,dev"];
    arguments.extend(["--prefix", "none", "--target", target]);
    arguments.extend(all_features.then_some("--all-features"));
    arguments.extend(more);
    cargo(&arguments)
}

/// The names at the start of the lines that `cargo tree` writes.
fn names(tree: &str) -> impl Iterator<Item = &str> {
    tree.lines().filter_map(|line| line.split_whitespace().next())
}

fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    let output = command.args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

fn deny_file() -> DenyFile {
    read("deny.toml")
}

fn lock_file() -> LockFile {
    read("Cargo.lock")
}

fn read<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    let text = fs::read_to_string(root().join(name)).expect("a readable file");
    toml::from_str(&text).unwrap_or_else(|why| panic!("{name}: {why}"))
}

fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect()
}
