//! What the README and the guide show is true: each fenced block is run, checked or compiled, or says why it is not.

mod block;
mod page;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use block::{Block, Mark};
use page::Page;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The README and the pages of the guide, by their paths from the root.
fn pages() -> Vec<String> {
    let guide = fs::read_dir(root().join("docs/guide")).expect("the guide");
    let files = guide.map(|entry| entry.expect("an entry").path());
    let names = files.filter(|file| file.extension().is_some_and(|ending| ending == "md")).map(|file| {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
        format!("docs/guide/{name}")
    });
    let mut pages: Vec<String> = names.chain(["README.md".to_owned()]).collect();
    pages.sort();
    pages
}

#[test]
fn every_block_of_the_readme_and_the_guide_does_what_it_shows() {
    let failures = thread::scope(|scope| {
        let tested: Vec<_> = pages().into_iter().map(|page| scope.spawn(move || wrong_with(&page))).collect();
        let failures = tested.into_iter().map(|page| page.join().expect("a page is tested to its end"));
        failures.flatten().collect::<Vec<String>>()
    });
    assert!(failures.is_empty(), "{} blocks:\n\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn every_page_is_in_the_index_of_the_guide() {
    let index = read(&root().join("docs/guide/README.md"));
    for page in pages() {
        let name = page.rsplit('/').next().expect("a name");
        assert!(name == "README.md" || index.contains(&format!("({name})")), "the index lacks {name}");
    }
}

/// Folders of the repository's root that hold no pages of the project.
const NO_PAGES: [&str; 4] = [".cache", ".git", "node_modules", "target"];

/// Every page of the repository: the guide, the decisions, the results, and the READMEs of crates and folders.
fn linked_pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                let skipped = path.file_name().is_some_and(|name| NO_PAGES.iter().any(|skip| name == *skip));
                if skipped { Vec::new() } else { linked_pages(&path) }
            } else {
                let is_page = path.extension().is_some_and(|ending| ending == "md");
                if is_page { vec![path] } else { Vec::new() }
            }
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_to_a_heading() {
    let pages = linked_pages(&root());
    assert!(pages.len() > 100, "{} pages were found", pages.len());
    for path in pages {
        let page = path.display();
        let text = read(&path);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            assert!(target.exists(), "{page} links to {link}");
            let found =
                heading.is_empty() || read(&target).lines().any(|line| anchor(line) == Some(heading.into()));
            assert!(found, "{page} links to {link}: there is no such heading");
        }
    }
}

/// What a link to this heading has after its `#`.
fn anchor(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?.to_lowercase();
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    Some(kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect())
}

#[test]
fn the_diagrams_are_what_the_script_draws() {
    let drawn =
        Command::new(root().join("scripts/diagrams")).arg("--check").output().expect("python3 is there");
    assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
}

#[test]
fn every_picture_is_shown_and_every_one_that_is_shown_is_there() {
    let compared =
        Command::new(root().join("scripts/pictures")).arg("--check").output().expect("bash is there");
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stderr));
}

/// What is wrong with the blocks of a page.
fn wrong_with(page: &str) -> Vec<String> {
    let blocks = block::blocks(&read(&root().join(page)));
    let running = Page::prepare();
    let mut failures = running.run(&blocks);
    for block in &blocks {
        if let Err(why) = looked_at(page, &running, block) {
            failures.push((block.line, why));
        }
    }
    failures.into_iter().map(|(line, why)| format!("{page}:{line}: {why}")).collect()
}

/// Checks a block that is not part of the page's session.
fn looked_at(page: &str, running: &Page, block: &Block) -> Result<(), String> {
    match &block.mark {
        Mark::NotTested | Mark::Output => return Ok(()),
        Mark::TestedBy(file) => return names_the_page(file, page),
        Mark::None => {}
    }
    match block.language.as_str() {
        "sh" | "text" => Ok(()),
        "toml" => running.config_check(&block.text),
        "json" => {
            let mut values = serde_json::Deserializer::from_str(&block.text).into_iter::<serde_json::Value>();
            values.try_for_each(|value| value.map(drop)).map_err(|why| why.to_string())
        }
        "rust" => is_a_doc_test(page, &block.text),
        other => Err(format!("`{other}` needs a mark: `tested by FILE` or `not tested: REASON`")),
    }
}

/// The file that is said to test a page reads it.
fn names_the_page(file: &str, page: &str) -> Result<(), String> {
    let text =
        fs::read_to_string(root().join("crates").join(file)).map_err(|why| format!("{file}: {why}"))?;
    if text.contains(page) { Ok(()) } else { Err(format!("crates/{file} does not read the page")) }
}

/// The crate `spile` compiles and runs the Rust of this page as doc tests, and a reader sees all of it.
fn is_a_doc_test(page: &str, code: &str) -> Result<(), String> {
    let name = page.rsplit('/').next().expect("a name");
    let doc_tests = read(&root().join("crates/spile/src/lib.rs"));
    if !doc_tests.contains(&format!("\"{name}\"")) && !doc_tests.contains(&format!("/{name}\"")) {
        return Err("crates/spile/src/lib.rs does not include the page".to_owned());
    }
    if code.lines().any(|line| line == "#" || line.starts_with("# ")) {
        return Err("a hidden line: what is pasted would not compile".to_owned());
    }
    Ok(())
}
