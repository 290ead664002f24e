//! The location of a value: the path to it from the file or from an entry of the registry.
//!
//! Values do not carry their locations. The code that reads or checks a value knows the path to it, and only the path to a fault is
//! looked up in the file.

use std::fmt;

use crate::registry::Kind;

/// The keys of several words that both files and JSON have. Types accept both spellings.
const WORDS: [(&str, &str); 5] = [
    ("anonymous_plan", "anonymousPlan"),
    ("api_key_count", "apiKeyCount"),
    ("api_keys", "apiKeys"),
    ("fixed_cost", "fixedCost"),
    ("on_failure", "onFailure"),
];

/// True if a JSON text may have a key in the spelling of files.
pub(super) fn has_file_keys(text: &[u8]) -> bool {
    let has = |key: &str| text.windows(key.len()).any(|part| part == key.as_bytes());
    text.contains(&b'_') && WORDS.iter().any(|(in_file, _)| has(in_file))
}

/// `onFailure` for `on_failure`, as JSON has it. Other keys are returned as they are.
pub(super) fn in_json(key: &str) -> &str {
    WORDS.iter().find(|(in_file, _)| *in_file == key).map_or(key, |(_, in_json)| in_json)
}

/// `on_failure` for `onFailure`, as files have it. Other keys are returned as they are.
pub(in crate::config) fn in_file(key: &str) -> &str {
    WORDS.iter().find(|(_, in_json)| *in_json == key).map_or(key, |(in_file, _)| in_file)
}

/// The path to a value. Each step points to the one before, so that adding one costs no allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location<'a> {
    before: Option<&'a Location<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    File,
    Variable(&'a str),
    Flag(&'a str),
    Entry(Kind, &'a str),
    Key(&'a str),
    Item(usize),
    /// The key of the value, instead of the value.
    Spelling,
}

impl<'a> Location<'a> {
    /// The whole file.
    pub(crate) const FILE: Self = Self { before: None, step: Step::File };

    /// An environment variable that sets no value of the file.
    pub(crate) const fn variable(name: &'a str) -> Self {
        Self { before: None, step: Step::Variable(name) }
    }

    /// A flag of the command line.
    pub(crate) const fn flag(name: &'a str) -> Self {
        Self { before: None, step: Step::Flag(name) }
    }

    /// An entry of the registry.
    pub(crate) const fn entry(kind: Kind, name: &'a str) -> Self {
        Self { before: None, step: Step::Entry(kind, name) }
    }

    /// A key of a table, as files spell it.
    pub(crate) const fn key(&'a self, key: &'a str) -> Self {
        Self { before: Some(self), step: Step::Key(key) }
    }

    pub(crate) const fn item(&'a self, index: usize) -> Self {
        Self { before: Some(self), step: Step::Item(index) }
    }

    /// The key of the value itself.
    pub(crate) const fn spelling(&'a self) -> Self {
        Self { before: Some(self), step: Step::Spelling }
    }

    /// An owned copy.
    pub(super) fn path(&self) -> Path {
        let mut path = self.before.map_or_else(Path::default, Location::path);
        match self.step {
            Step::File => {}
            Step::Variable(name) => path.root = Root::Variable(name.to_owned()),
            Step::Flag(name) => path.root = Root::Flag(name.to_owned()),
            Step::Entry(kind, name) => path.root = Root::Entry(format!("{kind}/{name}")),
            Step::Key(key) => path.steps.push(key.to_owned()),
            Step::Item(index) => path.steps.push(index.to_string()),
            Step::Spelling => path.is_key = true,
        }
        path
    }
}

/// A [`Location`] that owns its steps.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Path {
    pub(super) root: Root,
    /// Keys as files spell them, and indices.
    pub(super) steps: Vec<String>,
    /// Leads to the last key instead of its value.
    pub(super) is_key: bool,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) enum Root {
    #[default]
    File,
    /// A part of the file that could not be parsed, from one byte to another.
    Span(std::ops::Range<usize>),
    Variable(String),
    Flag(String),
    /// Kind and name: `plans/gold`.
    Entry(String),
}

impl Path {
    /// The name of the value in messages: `store.url`, `rules.cost`.
    pub(super) fn name(&self) -> String {
        let keys = self.steps.iter().filter(|step| !is_index(step)).map(|step| self.spelt(step));
        match (keys.collect::<Vec<_>>().join("."), &self.root) {
            (name, Root::Entry(entry)) if name.is_empty() => entry.clone(),
            (name, _) => name,
        }
    }

    pub(super) const fn is_json(&self) -> bool {
        matches!(self.root, Root::Entry(_))
    }

    fn spelt<'k>(&self, key: &'k str) -> &'k str {
        if self.is_json() { in_json(key) } else { key }
    }
}

fn is_index(step: &str) -> bool {
    step.bytes().all(|byte| byte.is_ascii_digit())
}

/// The steps alone: `limits[0].refill`.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            // A key that is not known is shown as it is.
            let is_verbatim = self.is_key && index + 1 == self.steps.len();
            match (index, if is_verbatim { step } else { self.spelt(step) }) {
                (_, item) if is_index(item) => write!(f, "[{item}]")?,
                (0, key) => f.write_str(key)?,
                (_, key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}
