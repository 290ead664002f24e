//! `spile replay`: what a configuration would have done to the requests of an access log.
//!
//! It works like any door, at the times of the log: lines become facts, the policy returns what is owed, and the decider decides. This
//! module must not know how a rule matches or how a bucket is counted, and decides nothing itself.

mod clock;
mod csv;
mod input;
mod limited_keys;
pub(crate) mod line;
mod needed_facts;
pub(crate) mod picture;
mod progress;
mod report;
mod scenario;
mod tally;
mod text;
mod timeline;

use std::path::PathBuf;

use anyhow::bail;
use http::HeaderName;
use smol_str::SmolStr;
use spile_core::Micros;

use self::clock::{LineOrder, LogClock, SecondSpread};
use self::csv::LimitedCsv;
use self::input::{LONGEST_LINE, LinePlace, LogInput, LogLine};
use self::line::{JsonFields, LineError, LineParser, LogRecord};
use self::progress::ProgressBar;
pub(crate) use self::report::ReplayReport;
use self::scenario::Scenario;
use crate::config::Config;

/// How many lines that cannot be read are shown.
const SHOWN_LINES: usize = 5;

/// The settings of a replay.
pub(crate) struct Replay {
    /// The logs, in the order of their times.
    pub(crate) logs: Vec<PathBuf>,
    /// The configurations, each with its file's name.
    pub(crate) configs: Vec<(String, Config)>,
    /// The fields of JSON lines that hold the facts.
    pub(crate) fields: JsonFields,
    /// Header fields to keep, besides those that the rules need.
    pub(crate) headers: Vec<HeaderName>,
    /// The host of lines that have none.
    pub(crate) host: SmolStr,
    /// Whether requests of one second are spread over it, if the log has no fractions.
    pub(crate) spread: bool,
    /// How many keys are listed.
    pub(crate) top: usize,
    /// Where to write each request that is limited.
    pub(crate) csv: Option<PathBuf>,
}

/// The lines read until now, counted.
#[derive(Debug, Default)]
struct LogLines {
    lines: u64,
    records: u64,
    unreadable: u64,
    first_unreadable: Vec<(LinePlace, LineError)>,
    order: LineOrder,
}

impl Replay {
    /// Reads the logs from beginning to end. Lines that cannot be read are counted; it fails only if there are no others.
    pub(crate) fn run(self) -> anyhow::Result<ReplayReport> {
        let clock = LogClock::default();
        let scenarios = self.configs.into_iter().map(|(name, config)| Scenario::new(name, config, &clock));
        let scenarios: Vec<Scenario> = scenarios.collect::<anyhow::Result<_>>()?;
        let mut headers = self.headers;
        headers.extend(scenarios.iter().flat_map(Scenario::headers));
        headers.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        headers.dedup();
        let parser = LineParser::new(self.fields, headers, self.host);
        let several = scenarios.len() > 1;
        let csv = self.csv.as_deref().map(|path| LimitedCsv::create(path, several)).transpose()?;
        let mut course = LineReplay { clock, scenarios, csv };
        let (mut seen, mut spread, mut progress) =
            (LogLines::default(), SecondSpread::new(), ProgressBar::start());
        for path in &self.logs {
            let mut input = LogInput::open(path)?;
            while let Some(line) = input.next_line()? {
                let record = match line {
                    LogLine::Text(line) if line.trim_ascii().is_empty() => continue,
                    LogLine::Text(line) => parser.parse(line),
                    LogLine::TooLong => Err(LineError::TooLong(LONGEST_LINE)),
                };
                let Some(record) = seen.note(record, &input) else { continue };
                if self.spread {
                    spread.push(record, input.place(), |record, place, at| course.decide(record, place, at));
                } else {
                    course.decide(&record, &input.place(), record.time.at);
                }
                progress.note(seen.lines, || input.progress());
            }
        }
        spread.flush(|record, place, at| course.decide(record, place, at));
        progress.finish();
        seen.require_some()?;
        if let Some(csv) = course.csv.take() {
            csv.finish()?;
        }
        Ok(ReplayReport::new(&self.logs, &seen, &course.scenarios, self.top, self.spread))
    }
}

/// The steps that a line takes once it is read.
struct LineReplay {
    clock: LogClock,
    scenarios: Vec<Scenario>,
    csv: Option<LimitedCsv>,
}

impl LineReplay {
    fn decide(&mut self, record: &LogRecord, place: &LinePlace, at: Micros) {
        let at = self.clock.advance_to(at);
        for scenario in &mut self.scenarios {
            let csv = &mut self.csv;
            scenario.decide(record, at, |limited| {
                if let Some(csv) = csv {
                    csv.write(place, record, at, limited);
                }
            });
        }
    }
}

impl LogLines {
    fn note(&mut self, record: Result<LogRecord, LineError>, input: &LogInput) -> Option<LogRecord> {
        self.lines += 1;
        match record {
            Ok(record) => {
                self.records += 1;
                self.order.note(record.time);
                Some(record)
            }
            Err(why) => {
                self.unreadable += 1;
                if self.first_unreadable.len() < SHOWN_LINES {
                    self.first_unreadable.push((input.place(), why));
                }
                None
            }
        }
    }

    fn require_some(&self) -> anyhow::Result<()> {
        if self.records > 0 {
            return Ok(());
        }
        let Some((place, why)) = self.first_unreadable.first() else { bail!("the log has no lines") };
        let lines = text::grouped(self.lines);
        bail!(
            "none of {lines} lines can be read; {}: {why}. Logs in the common, combined or JSON lines format can be read",
            place.shown()
        )
    }
}
