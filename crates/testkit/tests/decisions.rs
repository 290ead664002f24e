//! The decisions in docs/adr: each is in the index by its title, and a page and the one that supersedes it link to each other.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// How a page says that a later one changes it, with the word by which the later page says so.
const CHANGES: &[(&str, &str)] = &[("Superseded", "Supersedes"), ("Amended", "Amends")];

#[test]
fn every_decision_is_in_the_index_by_its_title_with_a_reason() {
    let index = fs::read_to_string(folder().join("README.md")).expect("the index");
    let decisions = decisions();
    assert!(decisions.len() > 50, "{} decisions were found", decisions.len());
    for (name, text) in decisions {
        let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let (number, title) = title.and_then(|title| title.split_once(": ")).expect("a number and a title");
        assert!(name.starts_with(&format!("{number}-")), "{name} has the number {number}");
        let row = format!("| [{number}]({name}) | {title} | ");
        let reason = index.lines().find_map(|line| line.strip_prefix(&row));
        assert!(
            reason.is_some_and(|reason| reason.len() > " |".len()),
            "the index lacks: {row}WHY IT MATTERS |"
        );
    }
}

#[test]
fn a_decision_and_the_one_that_changes_it_link_to_each_other() {
    let decisions = decisions();
    for (name, text) in &decisions {
        for (passive, active) in CHANGES {
            for later in links(text, passive) {
                let back = decisions.get(later).map(|text| links(text, active)).unwrap_or_default();
                assert!(back.contains(&name.as_str()), "{later} has no line \"*{active} [...]({name})\"");
            }
            for earlier in links(text, active) {
                let forth = decisions.get(earlier).map(|text| links(text, passive)).unwrap_or_default();
                assert!(
                    forth.contains(&name.as_str()),
                    "{earlier} has no line \"*{passive} ... [...]({name})\""
                );
            }
        }
    }
}

/// The pages that the sentences with this word in the note below a page's title link to.
fn links<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let note = text.split("\n\n").nth(1).filter(|note| note.starts_with('*') && !note.starts_with("**"));
    let sentences = note.unwrap_or_default().split(". ").flat_map(|part| part.split(".\n"));
    let meant = sentences.filter(|sentence| sentence.trim_start_matches('*').starts_with(word));
    meant
        .flat_map(|sentence| sentence.split("](").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .collect()
}

/// Every decision by the name of its file.
fn decisions() -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder()).expect("the decisions").map(|entry| entry.expect("an entry"));
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    let pages = named.filter(|(name, _)| name.starts_with(|letter: char| letter.is_ascii_digit()));
    pages.map(|(name, path)| (name, fs::read_to_string(path).expect("a readable page"))).collect()
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", "adr"].iter().collect()
}
