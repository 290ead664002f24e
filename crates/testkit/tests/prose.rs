//! Comments and pages read like those of other projects in Rust: turns of phrase that make a reader stop are as rare here as there.

use std::fs;
use std::path::{Path, PathBuf};

/// A turn of phrase, and the most lines of 10,000 that may have it. In tower, hyper, rustls, ripgrep, governor and redis-rs a tenth
/// to a half as many lines do.
struct Turn {
    name: &'static str,
    most: usize,
    is_in: fn(&Line) -> bool,
}

const TURNS: &[Turn] = &[
    Turn { name: "begins with \"What\"", most: 30, is_in: |line| line.begins_with(&["What"]) },
    Turn { name: "tell, told", most: 40, is_in: |line| line.has_word(&["tell", "tells", "told"]) },
    Turn {
        name: "of its own",
        most: 20,
        is_in: |line| line.has(&["of", "its", "own"]) || line.has(&["of", "their", "own"]),
    },
    Turn {
        name: "so many, so much, so long",
        most: 15,
        is_in: |line| ["many", "much", "long"].iter().any(|word| line.has(&["so", word])),
    },
    Turn {
        name: "whoever, nobody, whatever",
        most: 20,
        is_in: |line| line.has_word(&["whoever", "nobody", "whatever"]),
    },
    Turn {
        name: "is none, are none",
        most: 5,
        is_in: |line| line.has(&["is", "none"]) || line.has(&["are", "none"]),
    },
    Turn {
        name: "begins with \"As above\" or \"The same\"",
        most: 10,
        is_in: |line| line.begins_with(&["As", "above"]) || line.begins_with(&["The", "same"]),
    },
    Turn { name: "stands (not: stands for)", most: 20, is_in: Line::stands },
];

#[test]
fn comments_use_the_words_of_the_field() {
    let sources = files(&root().join("crates"), &["rs", "lua"]);
    let is_source = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "src");
    let lines: Vec<Line> =
        sources.iter().filter(|path| is_source(path)).flat_map(|path| comments(path)).collect();
    assert!(lines.len() > 5_000, "{} lines of comments were found", lines.len());
    assert_rare(&lines);
}

#[test]
fn pages_use_the_words_of_the_field() {
    let folders = ["docs/guide", "docs/adr"].map(|folder| files(&root().join(folder), &["md"]));
    let tops = ["README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY"]
        .map(|name| root().join(name).with_extension("md"));
    let pages = folders.into_iter().flatten().chain(tops);
    let lines: Vec<Line> = pages.flat_map(|path| prose(&path)).collect();
    assert!(lines.len() > 2_000, "{} lines of prose were found", lines.len());
    assert_rare(&lines);
}

#[test]
fn each_turn_of_phrase_is_found() {
    let examples = [
        ("What it returns.", "It returns What."),
        ("A caller is told.", "It tolls."),
        ("A name of its own.", "A name of its owner."),
        ("Waits so long.", "Waits as long."),
        ("For whoever asks.", "For a caller that asks."),
        ("There are none.", "It is `None`."),
        ("The same for two.", "For two, the same."),
        ("A stand-in; here it stands.", "It stands for two."),
    ];
    assert_eq!(examples.len(), TURNS.len());
    for (turn, (with, without)) in TURNS.iter().zip(examples) {
        let is_in = |text| (turn.is_in)(&Line::new(Path::new("page"), 1, text));
        assert!(is_in(with) && !is_in(without), "{}: {with} {without}", turn.name);
    }
}

#[track_caller]
fn assert_rare(lines: &[Line]) {
    let failures: Vec<String> = TURNS.iter().filter_map(|turn| too_frequent(turn, lines)).collect();
    let failures = failures.join("\n");
    assert!(failures.is_empty(), "rephrase with the subject first and the word of the field:\n{failures}");
}

/// The lines that have a turn of phrase, if there are too many.
fn too_frequent(turn: &Turn, lines: &[Line]) -> Option<String> {
    let found = lines.iter().filter(|line| (turn.is_in)(line));
    let found: Vec<String> = found.map(|line| format!("  {}: {}", line.place, line.text)).collect();
    let (count, all, most) = (found.len(), lines.len(), turn.most);
    let is_rare = count * 10_000 <= most * all;
    (!is_rare).then(|| {
        format!("{}: {count} of {all} lines, above {most} of 10,000\n{}", turn.name, found.join("\n"))
    })
}

/// A line of prose, and where it is.
struct Line {
    place: String,
    text: String,
    words: Vec<String>,
}

impl Line {
    fn new(path: &Path, number: usize, text: &str) -> Self {
        let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
        Self {
            place: format!("{}:{number}", path.display()),
            text: text.to_owned(),
            words: words.map(str::to_owned).collect(),
        }
    }

    fn begins_with(&self, words: &[&str]) -> bool {
        let begins = self.text.starts_with(char::is_alphabetic);
        begins
            && self.words.len() >= words.len()
            && self.words.iter().zip(words).all(|(ours, word)| ours == word)
    }

    fn has_word(&self, words: &[&str]) -> bool {
        self.words.iter().any(|ours| words.iter().any(|word| ours.eq_ignore_ascii_case(word)))
    }

    /// In this spelling: `None` is a value.
    fn has(&self, phrase: &[&str]) -> bool {
        self.words.windows(phrase.len()).any(|ours| ours.iter().zip(phrase).all(|(ours, word)| ours == word))
    }

    fn stands(&self) -> bool {
        let is_stand = |word: &str| ["stand", "stands"].iter().any(|stand| word.eq_ignore_ascii_case(stand));
        let followers = self.words.iter().skip(1).map(String::as_str).chain([""]);
        self.words.iter().zip(followers).any(|(word, next)| is_stand(word) && next != "for")
    }
}

/// The lines of a file of Rust or Lua that are comments, without their marks.
fn comments(path: &Path) -> Vec<Line> {
    let text = read(path);
    let comment = |line: &str| {
        let line = line.trim_start();
        let rest = line.strip_prefix("//").map(|rest| rest.strip_prefix(['/', '!']).unwrap_or(rest));
        rest.or_else(|| line.strip_prefix("--")).map(|rest| rest.trim().to_owned())
    };
    let lines = text.lines().enumerate();
    lines.filter_map(|(at, line)| comment(line).map(|text| Line::new(path, at + 1, &text))).collect()
}

/// The lines of a page outside of blocks, without the marks of lists, tables, headings and emphasis that they begin with.
fn prose(path: &Path) -> Vec<Line> {
    let mut is_block = false;
    let mut lines = Vec::new();
    for (at, line) in read(path).lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if !is_block && !line.trim().is_empty() {
            let is_mark = |letter: char| !letter.is_alphabetic() && !matches!(letter, '`' | '[' | '"');
            lines.push(Line::new(path, at + 1, line.trim_start_matches(is_mark)));
        }
    }
    lines
}

fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect()
}

/// Every file below a folder that ends in one of these ways.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
        for path in entries.map(|entry| entry.expect("a readable folder").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)) {
                found.push(path);
            }
        }
    }
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}
