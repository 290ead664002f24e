//! What the house style says that a program can check: folders by concept, no crumbs of files, and words of the field.

use std::fs;
use std::path::{Path, PathBuf};

/// How many files and folders the top of a crate's `src` has at most.
const MOST_AT_THE_TOP: usize = 19;

/// A file with fewer lines belongs in the file that uses it.
const FEWEST_LINES: usize = 15;

/// Files that may be short: they name the parts of a folder or crate.
const INDEXES: &[&str] = &["lib.rs", "main.rs", "mod.rs"];

/// Words that leave open who is meant. Say who.
const RIDDLES: &[&str] = &["whoever", "nobody", "somebody", "everybody", "anybody"];

/// What comes before the name of a type where it is defined.
const DEFINES: &[&str] = &["enum", "struct", "trait", "type"];

/// Names of types that say what a thing is like, and not what it is.
const PICTURES: &[&str] = &[
    "Bill",
    "Book",
    "CloseLook",
    "Company",
    "Desk",
    "Due",
    "Errand",
    "Farewell",
    "Front",
    "Guest",
    "House",
    "Introduction",
    "Live",
    "Mindful",
    "Office",
    "Pulse",
    "Roads",
    "Served",
    "Setup",
    "Stay",
    "Telling",
    "Till",
    "Way",
    "Whereabouts",
];

#[test]
fn the_top_of_a_crate_is_folders_by_concept() {
    for member in entries(&crates()) {
        let mut entries = entries(&member.join("src"));
        entries.sort();
        assert!(entries.len() <= MOST_AT_THE_TOP, "{} entries: {entries:#?}", entries.len());
    }
}

#[test]
fn short_files_are_part_of_the_file_that_uses_them() {
    let is_short = |(path, text): &(PathBuf, String)| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !INDEXES.contains(&name) && text.lines().count() < FEWEST_LINES
    };
    let short: Vec<_> = sources().into_iter().filter(is_short).map(|(path, _)| path).collect();
    assert!(short.is_empty(), "fewer than {FEWEST_LINES} lines: {short:#?}");
}

#[test]
fn comments_and_names_use_words_of_the_field() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (at, line) in text.lines().enumerate() {
            if let Some(word) = banned(line) {
                found.push(format!("{}:{}: {word}", path.display(), at + 1));
            }
        }
    }
    assert!(found.is_empty(), "{} lines:\n{}", found.len(), found.join("\n"));
}

fn banned(line: &str) -> Option<&str> {
    let mut previous = "";
    let is_comment = line.trim_start().starts_with("//");
    line.split(|letter: char| !letter.is_alphanumeric()).find(|word| {
        let defined = DEFINES.contains(&std::mem::replace(&mut previous, word));
        let riddle = || RIDDLES.iter().any(|riddle| word.eq_ignore_ascii_case(riddle));
        defined && PICTURES.contains(word) || is_comment && riddle()
    })
}

fn crates() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect()
}

/// Every file of Rust that is part of a crate, tests aside.
fn sources() -> Vec<(PathBuf, String)> {
    let mut folders: Vec<PathBuf> = entries(&crates()).into_iter().map(|member| member.join("src")).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).expect("a readable file");
                found.push((path, text));
            }
        }
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    entries.map(|entry| entry.expect("a readable folder").path()).collect()
}
