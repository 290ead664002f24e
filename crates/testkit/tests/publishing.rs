//! Each crate that is published has what a registry shows of it, and there is an order in which all of them can be published.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The fields that crates.io shows.
const SHOWN: &[&str] = &["description", "documentation", "license", "readme", "repository", "rust_version"];

/// The most keywords and the most categories that crates.io takes.
const MOST: usize = 5;

#[test]
fn every_published_crate_has_what_a_registry_shows() {
    for package in published() {
        let name = package["name"].as_str().expect("a name");
        for field in SHOWN {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        for list in ["keywords", "categories"] {
            let count = package[list].as_array().map_or(0, Vec::len);
            assert!((1..=MOST).contains(&count), "{name} has {count} {list}");
        }
        assert_eq!(package["metadata"]["docs"]["rs"]["all-features"], true, "{name} shows docs.rs a part");
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let readme = manifest.with_file_name(package["readme"].as_str().expect("a readme"));
        assert!(readme.is_file(), "{} is missing", readme.display());
    }
}

#[test]
fn crates_can_be_published_one_after_the_other() {
    let published = published();
    let names: BTreeSet<&str> = published.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut waiting: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &published {
        let name = package["name"].as_str().expect("a name");
        let dependencies = package["dependencies"].as_array().expect("a list of dependencies");
        // Cargo leaves out of a package what has a path and no version, which only dependencies of tests may have.
        let kept = dependencies.iter().filter(|dependency| dependency["req"] != "*");
        let members = kept.filter_map(|dependency| names.get(dependency["name"].as_str()?).copied());
        waiting.insert(name, members.collect());
    }
    while !waiting.is_empty() {
        let ready: Vec<&str> =
            waiting.iter().filter(|(_, needed)| needed.is_empty()).map(|(name, _)| *name).collect();
        assert!(!ready.is_empty(), "each of these waits for another one: {waiting:#?}");
        for name in ready {
            waiting.remove(name);
            for needed in waiting.values_mut() {
                needed.remove(name);
            }
        }
    }
}

/// The members of the workspace that are published, as cargo describes them.
fn published() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let Value::Array(mut packages) = metadata["packages"].take() else { panic!("a list of packages") };
    // `publish = false` is a list without a registry.
    packages.retain(|package| package["publish"].is_null());
    assert!(packages.len() > 10, "{} crates are published", packages.len());
    packages
}
