//! Everything that is wrong with a configuration, each with its line and what would be right.

use std::fmt;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::place::Place;
use crate::mask::{Masked, mask};
use crate::registry::Quarantine;

/// Something that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Fault {
    place: Place,
    message: String,
    fix: String,
    /// Line and column in the file as it was typed. Zero until all faults are known.
    at: (usize, usize),
}

/// As many as anybody reads. One plan that goes may be the fault of a hundred thousand tenants.
const MOST: usize = 1_000;

/// Everything found so far. A reader adds to it and goes on.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<Fault>,
    /// Those that are counted and no more.
    beyond: usize,
    /// Where faults of registry entries go, unless they count like any other.
    quarantine: Option<Quarantine>,
    /// How often a fault was added.
    added: usize,
}

impl Faults {
    /// Keeps the faults of registry entries apart.
    pub(crate) fn sparing_entries() -> Self {
        Self { quarantine: Some(Quarantine::default()), ..Self::default() }
    }

    /// How often a fault was added. Grows with each, also with one that was there.
    pub(crate) const fn added(&self) -> usize {
        self.added
    }

    /// The faults of registry entries, if they were kept apart.
    pub(crate) fn take_quarantine(&mut self) -> Quarantine {
        self.quarantine.take().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, place: &Place, message: impl fmt::Display, fix: impl fmt::Display) {
        self.added += 1;
        if let (Place::Registry { entry, field }, Some(quarantine)) = (place, &mut self.quarantine) {
            let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
            quarantine.add(entry, format!("{field}{message}; {fix}"));
            return;
        }
        if self.found.len() >= MOST {
            self.beyond += 1;
            return;
        }
        let (message, fix) = (mask(&message.to_string()), mask(&fix.to_string()));
        let fault = Fault { place: place.clone(), message, fix, at: (0, 0) };
        if !self.found.contains(&fault) {
            self.found.push(fault);
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether the first fault of the other one is here, too. What would be right may differ.
    pub(crate) fn have_first_of(&self, other: &Self) -> bool {
        let same = |first: &Fault| {
            self.found.iter().any(|fault| fault.place == first.place && fault.message == first.message)
        };
        other.found.first().is_some_and(same)
    }

    /// What is wrong first, in words.
    pub(crate) fn first_message(&self) -> Option<&str> {
        self.found.first().map(|fault| fault.message.as_str())
    }

    /// All of them, in the order of the file. From here on no secret of the file is part of them.
    pub(crate) fn into_error(mut self, path: PathBuf, text: &str) -> ConfigError {
        self.found.sort_by_key(|fault| match &fault.place {
            Place::File(span) => (0, span.start),
            Place::Environment(_) => (1, 0),
            Place::Registry { .. } => (2, 0),
        });
        let masked = Masked::new(text);
        let (mut line, mut line_start, mut seen) = (1, 0, 0);
        for Fault { place, at, .. } in &mut self.found {
            let Place::File(span) = place else { continue };
            // What holds unless it is defined otherwise has places of its own, which may be none in this file.
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
        ConfigError { path, text: masked.text, faults: self.found, beyond: self.beyond }
    }
}

/// A configuration that cannot be used. Shows every fault with its line, and what would be right.
#[derive(Debug)]
pub struct ConfigError {
    path: PathBuf,
    text: String,
    faults: Vec<Fault>,
    beyond: usize,
}

impl ConfigError {
    /// Where, what is wrong and what would be right, one line each.
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

    /// How many things are wrong.
    pub const fn count(&self) -> usize {
        self.faults.len() + self.beyond
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            match &fault.place {
                Place::File(span) => writeln!(f, "{}\n", self.snippet(fault, span.clone()))?,
                Place::Registry { entry, .. } => {
                    writeln!(f, "error: {}\n --> registry entry {entry}: {}\n", fault.message, fault.fix)?;
                }
                Place::Environment(name) => {
                    writeln!(
                        f,
                        "error: {}\n --> environment variable {name}: {}\n",
                        fault.message, fault.fix
                    )?;
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

impl ConfigError {
    /// The place in a few words: `spile.toml:3:8`, `SPILE_STORE__URL`, `plans/gold.refill`.
    fn spot(&self, fault: &Fault) -> Option<String> {
        match &fault.place {
            Place::File(span) if span.is_empty() => None,
            Place::File(_) => Some(format!("{}:{}:{}", self.path.display(), fault.at.0, fault.at.1)),
            Place::Environment(name) => Some(name.clone()),
            Place::Registry { entry, field } if field.is_empty() => Some(entry.clone()),
            Place::Registry { entry, field } => Some(format!("{entry}.{field}")),
        }
    }

    fn snippet(&self, fault: &Fault, span: std::ops::Range<usize>) -> String {
        // The parser counts in bytes, and may point into a letter of several.
        let begins = |at: &usize| self.text.is_char_boundary(*at);
        let end = (span.end..self.text.len()).find(begins).unwrap_or(self.text.len());
        let span = (0..=span.start.min(end)).rev().find(begins).unwrap_or_default()..end;
        let (path, (line, column)) = (self.path.display().to_string(), fault.at);
        let mark = AnnotationKind::Primary.span(span).label(fault.fix.as_str());
        let snippet = Snippet::source(self.text.as_str()).path(path.as_str()).annotation(mark);
        let title = Level::ERROR.primary_title(fault.message.as_str());
        let shown = Renderer::plain().render(&[title.element(snippet)]);
        // The column is the one in the line as it is shown, which a mask before it has moved.
        let place = format!("--> {path}:{line}:");
        match shown.split_once(&place).and_then(|(title, rest)| Some((title, rest.split_once('\n')?.1))) {
            Some((title, rest)) => format!("{title}{place}{column}\n{rest}"),
            None => shown,
        }
    }
}
