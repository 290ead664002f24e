//! Everything that is wrong with a configuration, each with its line and what would be right.

use std::fmt;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::place::Place;

/// Something that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Fault {
    place: Place,
    message: String,
    fix: String,
}

/// As many as anybody reads. One plan that goes may be the fault of a hundred thousand tenants.
const MOST: usize = 1_000;

/// Everything found so far. A reader adds to it and goes on.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<Fault>,
    /// Those that are counted and no more.
    beyond: usize,
}

impl Faults {
    pub(crate) fn add(&mut self, place: &Place, message: impl fmt::Display, fix: impl fmt::Display) {
        if self.found.len() >= MOST {
            self.beyond += 1;
            return;
        }
        let fault = Fault { place: place.clone(), message: message.to_string(), fix: fix.to_string() };
        if !self.found.contains(&fault) {
            self.found.push(fault);
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All of them, in the order of the file.
    pub(crate) fn into_error(mut self, path: PathBuf, text: String) -> ConfigError {
        self.found.sort_by_key(|fault| match &fault.place {
            Place::File(span) => (0, span.start),
            Place::Environment(_) => (1, 0),
            Place::Registry { .. } => (2, 0),
        });
        ConfigError { path, text, faults: self.found, beyond: self.beyond }
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
            let Fault { place, message, fix } = fault;
            match self.spot(place) {
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
    fn spot(&self, place: &Place) -> Option<String> {
        match place {
            Place::File(span) if span.is_empty() => None,
            Place::File(span) => {
                let before = self.text.get(..span.start)?;
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                Some(format!("{}:{line}:{column}", self.path.display()))
            }
            Place::Environment(name) => Some(name.clone()),
            Place::Registry { entry, field } if field.is_empty() => Some(entry.clone()),
            Place::Registry { entry, field } => Some(format!("{entry}.{field}")),
        }
    }

    fn snippet(&self, fault: &Fault, span: std::ops::Range<usize>) -> String {
        let end = span.end.min(self.text.len());
        let span = span.start.min(end)..end;
        let path = self.path.display().to_string();
        let mark = AnnotationKind::Primary.span(span).label(fault.fix.as_str());
        let snippet = Snippet::source(self.text.as_str()).path(path).annotation(mark);
        Renderer::plain().render(&[Level::ERROR.primary_title(fault.message.as_str()).element(snippet)])
    }
}
