//! Each request that is limited, as a line of CSV.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use spile_core::{LimitName, Micros};

use super::input::LinePlace;
use super::line::LogRecord;
use super::scenario::LimitedRequest;
use super::text::exact_time;

/// Writes requests as they are limited.
pub(super) struct LimitedCsv {
    path: PathBuf,
    file: BufWriter<File>,
    /// Whether there is a column for the configuration.
    several: bool,
    /// The first failure. Nothing is written after it.
    failed: Option<io::Error>,
}

impl LimitedCsv {
    pub(super) fn create(path: &Path, several: bool) -> anyhow::Result<Self> {
        let created = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut csv = Self { path: path.to_owned(), file: BufWriter::new(created), several, failed: None };
        let config = if several { "config," } else { "" };
        csv.line(&format!("{config}time,file,line,outcome,rule,limit,key,retry_after_ms,method,path\n"));
        Ok(csv)
    }

    pub(super) fn write(
        &mut self,
        place: &LinePlace,
        record: &LogRecord,
        at: Micros,
        limited: &LimitedRequest<'_>,
    ) {
        let (method, path) = match &record.request {
            Ok(request) => (request.method.as_str(), request.path.matched()),
            Err(_) => ("", ""),
        };
        let (time, line) = (exact_time(at), place.line.to_string());
        let wait = limited.wait.as_micros().div_ceil(1_000).to_string();
        let limit = limited.limit.map(LimitName::as_str).unwrap_or_default();
        let outcome = limited.outcome.as_str();
        let fields =
            [&time, &*place.file, &line, outcome, limited.rule, limit, limited.key, &wait, method, path];
        let config = Some(limited.config).filter(|_| self.several);
        let fields: Vec<String> = config.into_iter().chain(fields).map(field).collect();
        self.line(&(fields.join(",") + "\n"));
    }

    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let written = match self.failed.take() {
            Some(why) => Err(why),
            None => self.file.flush(),
        };
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn line(&mut self, line: &str) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(line.as_bytes()).err();
        }
    }
}

/// Writes a field, in quotes if necessary. Text that a spreadsheet would treat as a formula gets an apostrophe in front.
fn field(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_one_field_and_never_a_formula() {
        let fields = ["a", "a,b", "a\"b", "=1+1", "-x,y", "a\nb", ""].map(field);
        assert_eq!(fields, ["a", "\"a,b\"", "\"a\"\"b\"", "'=1+1", "\"'-x,y\"", "\"a\nb\"", ""]);
    }
}
