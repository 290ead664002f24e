//! The tests that SECURITY.md names for its promises exist.

use std::fs;
use std::path::Path;

/// The contents of all files under the folder.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            text += &sources(&entry);
        } else {
            text += &fs::read_to_string(&entry).expect("a source file");
        }
    }
    text
}

#[test]
fn every_test_that_the_table_of_attacks_names_is_there() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(own.join("../../SECURITY.md")).expect("the page");
    let table = page.split("## Attacks on the gateway").nth(1).and_then(|rest| rest.split("\n## ").next());
    let folders = ["tests", "src", "../listener/src", "../server/tests", "../policy/src"]
        .map(|folder| sources(&own.join(folder)));
    let rows = table.expect("the table").lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut named = 0;
    for row in rows {
        let last = row.trim_end_matches([' ', '|']).rsplit(" | ").next().expect("a cell");
        for test in last.split('`').filter(|word| word.contains('_') && !word.contains('/')) {
            named += 1;
            assert!(
                folders.iter().any(|text| text.contains(&format!("fn {test}("))),
                "no test is called {test}"
            );
        }
    }
    assert!(named >= 25, "the table was read: {named}");
}
