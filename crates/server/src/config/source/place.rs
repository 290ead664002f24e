//! Where a value is: the way to it from the file or from an entry of the registry.
//!
//! Values do not carry their places. The code that reads or checks a value knows the way to it, and only the way to a
//! mistake is ever looked up in the file.

use std::fmt;

use crate::registry::Kind;

/// The way to a value. Each step points to the one before, so that taking one costs no allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    before: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    File,
    Variable(&'a str),
    Entry(Kind, &'a str),
    /// A key that this program knows: in snake case or camel case, for files have the one and JSON has the other.
    Key(&'a str),
    /// A key that the operator chose.
    Name(&'a str),
    Item(usize),
    /// Not the value, but the key that it is under.
    Spelling,
}

impl<'a> At<'a> {
    /// The whole file.
    pub(crate) const FILE: Self = Self { before: None, step: Step::File };

    /// An environment variable that is no value of the file.
    pub(crate) const fn variable(name: &'a str) -> Self {
        Self { before: None, step: Step::Variable(name) }
    }

    /// An entry of the registry.
    pub(crate) const fn entry(kind: Kind, name: &'a str) -> Self {
        Self { before: None, step: Step::Entry(kind, name) }
    }

    pub(crate) const fn key(&'a self, key: &'a str) -> Self {
        Self { before: Some(self), step: Step::Key(key) }
    }

    pub(crate) const fn name(&'a self, name: &'a str) -> Self {
        Self { before: Some(self), step: Step::Name(name) }
    }

    pub(crate) const fn item(&'a self, index: usize) -> Self {
        Self { before: Some(self), step: Step::Item(index) }
    }

    /// The key of the value itself.
    pub(crate) const fn spelling(&'a self) -> Self {
        Self { before: Some(self), step: Step::Spelling }
    }

    /// The same way for as long as anybody wants to keep it.
    pub(super) fn path(&self) -> Path {
        let mut path = match self.before {
            Some(before) => before.path(),
            None => Path { root: Root::File, steps: Vec::new(), is_key: false },
        };
        let is_file = matches!(path.root, Root::File);
        match self.step {
            Step::File => {}
            Step::Variable(name) => path.root = Root::Variable(name.to_owned()),
            Step::Entry(kind, name) => path.root = Root::Entry(format!("{kind}/{name}")),
            Step::Key(key) => {
                path.steps.push(PathStep::Key(if is_file { snake_case(key) } else { camel_case(key) }));
            }
            Step::Name(name) => path.steps.push(PathStep::Key(name.to_owned())),
            Step::Item(index) => path.steps.push(PathStep::Item(index)),
            Step::Spelling => path.is_key = true,
        }
        path
    }
}

/// An [`At`] that owns its steps.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Path {
    pub(super) root: Root,
    pub(super) steps: Vec<PathStep>,
    /// Leads to the last key instead of its value.
    pub(super) is_key: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Root {
    File,
    /// A part of the file that could not be parsed, from one byte to another.
    Span(std::ops::Range<usize>),
    Variable(String),
    /// Kind and name: `plans/gold`.
    Entry(String),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum PathStep {
    Key(String),
    Item(usize),
}

impl Path {
    /// What the value is called in messages: `store.url`, `rules.cost`.
    pub(super) fn name(&self) -> String {
        let keys = self.steps.iter().filter_map(|step| match step {
            PathStep::Key(key) => Some(key.as_str()),
            PathStep::Item(_) => None,
        });
        match (keys.collect::<Vec<_>>().join("."), &self.root) {
            (name, Root::Entry(entry)) if name.is_empty() => entry.clone(),
            (name, _) if name.is_empty() => "the file".to_owned(),
            (name, _) => name,
        }
    }
}

/// The steps alone: `limits[0].refill`.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                PathStep::Key(key) if index == 0 => f.write_str(key)?,
                PathStep::Key(key) => write!(f, ".{key}")?,
                PathStep::Item(item) => write!(f, "[{item}]")?,
            }
        }
        Ok(())
    }
}

/// `on_failure` for `onFailure`, as files have it.
pub(in crate::config) fn snake_case(key: &str) -> String {
    let mut snake = String::with_capacity(key.len() + 4);
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// `onFailure` for `on_failure`, as JSON has it.
fn camel_case(key: &str) -> String {
    let mut words = key.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |camel, word| camel + &word[..1].to_ascii_uppercase() + &word[1..])
}
