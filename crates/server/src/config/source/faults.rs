//! The faults of a configuration, each with its line and a fix.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use toml::de::{DeTable, DeValue};

use super::location::{Location, Path, Root};
use super::{disclosure, environment};
use crate::config::origin::Origin;
use crate::registry::Quarantine;
use crate::secret::{Masked, mask, without};

/// A fault, and its location.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Fault {
    path: Path,
    message: String,
    fix: String,
    /// Line and column in the file as it was typed. Zero until all faults are known.
    at: (usize, usize),
}

impl Fault {
    /// Hides in the message what is hidden in the file or in the variable.
    fn hide_values(&mut self, hidden: &[Range<usize>], origin: &Origin) {
        let steps = &self.path.steps;
        self.message = match &self.path.root {
            Root::Span(span) => {
                let first = hidden.partition_point(|part| part.end <= span.start);
                let within = hidden[first..].iter().take_while(|part| part.start < span.end);
                without(&self.message, within.map(|part| &origin.text[part.clone()]))
            }
            Root::Variable(name) => {
                let Some((_, text)) = origin.variables.iter().find(|(own, _)| own == name) else { return };
                let steps = if steps.is_empty() {
                    environment::keys(name).unwrap_or_default()
                } else {
                    steps.clone()
                };
                let hidden = disclosure::hidden_in_variable(&steps, text);
                without(&self.message, hidden.into_iter().map(|part| &text[part]))
            }
            Root::File | Root::Flag(_) | Root::Entry(_) => return,
        };
    }
}

/// The most faults that are shown. Removing one plan may cause a fault in a hundred thousand tenants.
const MOST: usize = 1_000;

/// The faults found so far. A reader adds to them and continues.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<Fault>,
    /// The number of further faults, which are only counted.
    beyond: usize,
    /// Collects the faults of registry entries. `None` if they count like any other.
    quarantine: Option<Quarantine>,
    /// How often a fault was added.
    added: usize,
}

impl Faults {
    /// Keeps the faults of registry entries apart.
    pub(crate) fn sparing_entries() -> Self {
        Self { quarantine: Some(Quarantine::default()), ..Self::default() }
    }

    /// How often a fault was added, including repeated ones.
    pub(crate) const fn added(&self) -> usize {
        self.added
    }

    /// The faults of registry entries, if they were kept apart.
    pub(crate) fn take_quarantine(&mut self) -> Quarantine {
        self.quarantine.take().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, at: &Location<'_>, message: impl fmt::Display, fix: impl fmt::Display) {
        self.add_path(at.path(), message, fix);
    }

    /// Adds a fault at these bytes of the file.
    pub(super) fn add_span(&mut self, span: Range<usize>, message: impl fmt::Display, fix: &str) {
        let path = Path { root: Root::Span(span), steps: Vec::new(), is_key: false };
        self.add_path(path, message, fix);
    }

    pub(super) fn add_path(&mut self, path: Path, message: impl fmt::Display, fix: impl fmt::Display) {
        self.added += 1;
        if let (Root::Entry(entry), Some(quarantine)) = (&path.root, &mut self.quarantine) {
            let field = path.to_string();
            let field = if field.is_empty() { field } else { format!("{field}: ") };
            quarantine.add(entry, format!("{field}{message}; {fix}"));
            return;
        }
        if self.found.len() >= MOST {
            self.beyond += 1;
            return;
        }
        let (message, fix) = (mask(&message.to_string()), mask(&fix.to_string()));
        let fault = Fault { path, message, fix, at: (0, 0) };
        if !self.found.contains(&fault) {
            self.found.push(fault);
        }
    }

    /// Whether there is a fault at this place. A value of the wrong type counts as absent, and is a fault already.
    pub(crate) fn has(&self, at: &Location<'_>) -> bool {
        let path = at.path();
        self.found.iter().any(|found| found.path == path)
    }

    /// The value, or a fault that it is missing.
    pub(crate) fn required<T>(&mut self, at: &Location<'_>, key: &str, value: Option<T>) -> Option<T> {
        if value.is_none() && !self.has(&at.key(key)) {
            let message = format!("`{}` has no `{key}`", at.path().name());
            self.add(&at.key(key), message, format_args!("add `{key} = …`"));
        }
        value
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// True if these include the first fault of the other. The fix may differ.
    pub(crate) fn have_first_of(&self, other: &Self) -> bool {
        let same = |first: &Fault| {
            self.found.iter().any(|found| found.path == first.path && found.message == first.message)
        };
        other.found.first().is_some_and(same)
    }

    /// The message of the first fault.
    pub(crate) fn first_message(&self) -> Option<&str> {
        self.found.first().map(|found| found.message.as_str())
    }

    /// Returns all faults in the order of the file, without the file's secrets.
    pub(crate) fn into_error(self, origin: &Origin) -> ConfigError {
        let (table, errors) = DeTable::parse_recoverable(&origin.text);
        let broken: Vec<Range<usize>> = errors.iter().filter_map(toml::de::Error::span).collect();
        let hidden = disclosure::hidden(&origin.text, table.get_ref(), &broken);
        let root = DeValue::Table(table.into_inner());
        let mut faults = self.found;
        for fault in &mut faults {
            fault.path.find_in(&root, &origin.variables);
            fault.hide_values(&hidden, origin);
        }
        let masked = Masked::hiding(&origin.text, hidden);
        faults.sort_by_key(|fault| match &fault.path.root {
            Root::File => (0, 0),
            Root::Span(span) => (0, span.start),
            Root::Variable(_) | Root::Flag(_) => (1, 0),
            Root::Entry(_) => (2, 0),
        });
        number_lines(&mut faults, &origin.text, &masked);
        ConfigError { path: origin.name(), text: masked.text, faults, beyond: self.beyond }
    }
}

impl Path {
    /// Resolves a path to bytes of the file, as deep as its keys exist there, or to the variable that sets the value.
    fn find_in(&mut self, root: &DeValue<'_>, variables: &[(String, String)]) {
        if self.root == Root::File {
            let (depth, span) = find(self, root);
            self.root =
                environment::setting(&self.steps, depth, variables).map_or(Root::Span(span), Root::Variable);
        }
    }
}

/// The number of steps of the path that exist in the file, and the bytes of the last.
fn find(path: &Path, root: &DeValue<'_>) -> (usize, Range<usize>) {
    let (mut value, mut span) = (root, 0..0);
    for (depth, step) in path.steps.iter().enumerate() {
        let is_last = depth + 1 == path.steps.len();
        let next = match (value, step) {
            (DeValue::Table(table), key) => {
                table.iter().find(|(own, _)| own.get_ref() == key).map(|(own, value)| (own.span(), value))
            }
            (DeValue::Array(list), index) => {
                index.parse().ok().and_then(|index: usize| list.get(index)).map(|item| (item.span(), item))
            }
            _ => None,
        };
        let Some((key_span, next)) = next else { return (depth, span) };
        span = if is_last && path.is_key { key_span } else { next.span() };
        value = next.get_ref();
    }
    (path.steps.len(), span)
}

/// Sets the line and column of each fault, and moves its bytes to the same place in the masked text.
fn number_lines(faults: &mut [Fault], text: &str, masked: &Masked) {
    let (mut line, mut line_start, mut seen) = (1, 0, 0);
    for Fault { path, at, .. } in faults {
        let Root::Span(span) = &mut path.root else { continue };
        // The parser counts bytes, and may point into a character of several.
        let start = (0..=span.start.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
        let start = start.unwrap_or_default().max(seen);
        for (newline, _) in text[seen..start].match_indices('\n') {
            (line, line_start) = (line + 1, seen + newline + 1);
        }
        seen = start;
        *at = (line, text[line_start..start].chars().count() + 1);
        if span.start < span.end {
            *span = masked.span(span);
        }
    }
}

/// A configuration that cannot be used. Shows every fault with its line and a fix.
#[derive(Debug)]
pub struct ConfigError {
    path: PathBuf,
    text: String,
    faults: Vec<Fault>,
    beyond: usize,
}

impl ConfigError {
    /// The place, the fault and a fix, one line for each fault.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let lines = self.faults.iter().map(|fault| {
            let Fault { message, fix, .. } = fault;
            match self.spot(fault) {
                Some(spot) => format!("{spot}: {message}; {fix}"),
                None => format!("{message}; {fix}"),
            }
        });
        lines.chain((self.beyond > 0).then(|| format!("and {} more", self.beyond)))
    }

    /// The number of faults.
    pub const fn count(&self) -> usize {
        self.faults.len() + self.beyond
    }

    /// The place in a few words: `spile.toml:3:8`, `SPILE_STORE__URL`, `plans/gold.refill`.
    fn spot(&self, fault: &Fault) -> Option<String> {
        let field = fault.path.to_string();
        match &fault.path.root {
            Root::Span(span) if !span.is_empty() => {
                Some(format!("{}:{}:{}", self.path.display(), fault.at.0, fault.at.1))
            }
            Root::File | Root::Span(_) => None,
            Root::Variable(name) | Root::Flag(name) => Some(name.clone()),
            Root::Entry(entry) if field.is_empty() => Some(entry.clone()),
            Root::Entry(entry) => Some(format!("{entry}.{field}")),
        }
    }

    fn snippet(&self, fault: &Fault, span: Range<usize>) -> String {
        let begins = |at: &usize| self.text.is_char_boundary(*at);
        let end = (span.end..self.text.len()).find(begins).unwrap_or(self.text.len());
        let span = (0..=span.start.min(end)).rev().find(begins).unwrap_or_default()..end;
        let (path, (line, column)) = (self.path.display().to_string(), fault.at);
        let mark = AnnotationKind::Primary.span(span).label(fault.fix.as_str());
        let snippet = Snippet::source(self.text.as_str()).path(path.as_str()).annotation(mark);
        let title = Level::ERROR.primary_title(fault.message.as_str());
        let shown = Renderer::plain().render(&[title.element(snippet)]);
        // The column is the one in the line as it was typed: a mask before it has moved it.
        let place = format!("--> {path}:{line}:");
        match shown.split_once(&place).and_then(|(title, rest)| Some((title, rest.split_once('\n')?.1))) {
            Some((title, rest)) => format!("{title}{place}{column}\n{rest}"),
            None => shown,
        }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            let Fault { message, fix, .. } = fault;
            match &fault.path.root {
                Root::File => writeln!(f, "error: {message}: {fix}\n")?,
                Root::Span(span) => writeln!(f, "{}\n", self.snippet(fault, span.clone()))?,
                Root::Flag(name) => writeln!(f, "error: {message}\n --> flag {name}: {fix}\n")?,
                Root::Entry(entry) => writeln!(f, "error: {message}\n --> registry entry {entry}: {fix}\n")?,
                Root::Variable(name) => {
                    writeln!(f, "error: {message}\n --> environment variable {name}: {fix}\n")?;
                }
            }
        }
        if self.beyond > 0 {
            writeln!(f, "and {} more\n", self.beyond)?;
        }
        let things = if self.count() == 1 { "thing is" } else { "things are" };
        write!(f, "{} {things} wrong with the configuration in {}", self.count(), self.path.display())
    }
}
