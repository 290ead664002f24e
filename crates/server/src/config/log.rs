//! How the process logs: how much, and in which format.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::value::{Text, Written};

/// `[log]`: how the process logs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    #[serde(with = "Text")]
    pub(crate) level: LogLevel,
    pub(crate) format: LogFormat,
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object each, for machines.
    Json,
}

/// How much is logged: a level, or levels by target as in `info,spile::gateway=debug`.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLevel {
    typed: String,
    targets: Targets,
}

/// The text is not a level.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{0}` is not a log level: write {RIGHT}")]
pub struct UnknownLogLevel(String);

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const RIGHT: &str =
    "off, error, warn, info, debug or trace, or levels by target as in `info,spile::gateway=debug`";
/// The target of a level without a target. Libraries log at `info` at most, because their records of requests at lower
/// levels may hold header fields. A target that is named has exactly the level that it is given.
const OWN: &str = "spile";

impl LogLevel {
    pub(crate) const fn targets(&self) -> &Targets {
        &self.targets
    }
}

impl Default for LogLevel {
    fn default() -> Self {
        "info".parse().expect("it is a level")
    }
}

impl FromStr for LogLevel {
    type Err = UnknownLogLevel;

    fn from_str(typed: &str) -> Result<Self, UnknownLogLevel> {
        let unknown = || UnknownLogLevel(typed.to_owned());
        let level = |word: &str| {
            let is_level = LEVELS.iter().any(|known| known.eq_ignore_ascii_case(word));
            word.parse::<LevelFilter>().ok().filter(|_| is_level).ok_or_else(unknown)
        };
        let mut targets = Targets::new();
        for directive in typed.split(',').map(str::trim) {
            match directive.split_once('=') {
                None => {
                    let level = level(directive)?;
                    targets = targets.with_default(level.min(LevelFilter::INFO)).with_target(OWN, level);
                }
                Some((target, _)) if target.is_empty() || target.contains(char::is_whitespace) => {
                    return Err(unknown());
                }
                Some((target, word)) => targets = targets.with_target(target, level(word)?),
            }
        }
        Ok(Self { typed: typed.to_owned(), targets })
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

impl Written for LogLevel {
    const RIGHT: &'static str = RIGHT;

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_: UnknownLogLevel| format!("`{text}` is not a log level"))
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn enabled(level: &str, target: &str, at: Level) -> bool {
        level.parse::<LogLevel>().expect("a level").targets().would_enable(target, &at)
    }

    #[test]
    fn a_level_is_for_spile_and_not_for_what_libraries_say_of_requests() {
        assert!(enabled("debug", "spile::gateway", Level::DEBUG));
        assert!(!enabled("trace", "h2::codec", Level::DEBUG), "frames may hold header fields");
        assert!(enabled("trace,h2=debug", "h2::codec", Level::DEBUG), "unless it is asked for by name");
        assert!(enabled("warn", "spile::store", Level::WARN) && !enabled("warn", "h2", Level::INFO));
        assert!(!enabled("off", "spile::store", Level::ERROR));
        assert!(enabled("error,spile::gateway=debug", "spile::gateway", Level::DEBUG));
        assert!(!enabled("error,spile::gateway=debug", "spile::store", Level::WARN));
    }

    #[test]
    fn what_is_not_a_level_is_refused_and_not_taken_for_a_target() {
        for wrong in ["", "debgu", "info,", "spile::gateway", "info,spile=loud", "=info", "a b=info", "3"] {
            let why = wrong.parse::<LogLevel>().expect_err(wrong).to_string();
            assert!(why.contains("off, error, warn, info, debug or trace"), "{why}");
        }
        assert!("INFO".parse::<LogLevel>().is_ok());
    }
}
