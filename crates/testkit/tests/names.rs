//! One word, one meaning: a type name that occurs in two crates is in the list below, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The simulation models Redis and judges the other crates without their types, so it declares a `Charge`, a `Shape` and others again.
const INDEPENDENT: &str = "sim";

/// Names that mean the same wherever they occur.
const SHARED: &[(&str, &str)] = &[
    ("Decision", "the server's is what OpenAPI says of the core's"),
    ("QueryParams", "both extract the query of a request, each with the problem document of its listener"),
    ("Reason", "the server's is what OpenAPI says of the core's"),
    (
        "Rule",
        "the layer's is built in code, the policy's from a configuration; both say who pays under which plans",
    ),
    ("Tenant", "the layer's is the extension that carries the policy's id"),
];

#[test]
fn a_type_name_means_one_thing_in_the_whole_workspace() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in std::fs::read_dir(crates).expect("the crates").map(|entry| entry.expect("a crate").path()) {
        let name = folder.file_name().expect("a folder has a name").to_string_lossy().into_owned();
        if name == INDEPENDENT {
            continue;
        }
        for text in sources(&folder.join("src")) {
            for declared in declared(&text) {
                users.entry(declared.to_owned()).or_default().insert(name.clone());
            }
        }
    }
    assert!(users.len() > 500, "the declarations were found");
    let shared: Vec<String> = users
        .iter()
        .filter(|(name, crates)| crates.len() > 1 && SHARED.iter().all(|(shared, _)| shared != name))
        .map(|(name, crates)| format!("{name}: {crates:?}"))
        .collect();
    assert!(shared.is_empty(), "qualify the rarer meaning, or list the name:\n{}", shared.join("\n"));
    for (name, _) in SHARED {
        let crates = users.get(*name).map_or(0, BTreeSet::len);
        assert!(crates > 1, "{name} is not shared any more: take it off the list");
    }
}

/// The types that a file declares at its top level, tests aside.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    code.lines().filter_map(|line| {
        let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub(super) ")).unwrap_or(line);
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let kinds = ["struct ", "enum ", "trait ", "type "];
        let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
        rest.split(|letter: char| !letter.is_alphanumeric()).next()
    })
}

/// Every file of Rust below a folder.
fn sources(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    let mut texts = Vec::new();
    for path in paths {
        if path.is_dir() {
            texts.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            texts.push(std::fs::read_to_string(&path).expect("a readable file"));
        }
    }
    texts
}
