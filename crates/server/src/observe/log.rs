//! The log of the process. If JSON is selected, everything that `spile serve` writes is JSON, including its banner, errors at the start,
//! and panics.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value};
use spile_core::{Clock, SystemClock};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, fmt, reload};

use crate::config::{LogConfig, LogFormat, LogLevel};

/// The log that was started.
static STARTED: OnceLock<StartedLog> = OnceLock::new();

struct StartedLog {
    format: LogFormat,
    level: reload::Handle<Targets, Registry>,
}

/// Starts the log. Only the first call in a process has an effect.
pub(crate) fn start(config: &LogConfig) {
    let (filter, level) = reload::Layer::new(config.level.targets().clone());
    let log = tracing_subscriber::registry().with(filter);
    // A line that cannot be written is lost. Reporting that on stderr would panic if stderr itself is closed.
    let lines = fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    let started = match config.format {
        LogFormat::Text => log.with(lines.with_ansi(false)).try_init(),
        LogFormat::Json => log.with(lines.json().flatten_event(true)).try_init(),
    };
    // A process that already has a logger keeps it.
    if started.is_err() {
        return;
    }
    let _first = STARTED.set(StartedLog { format: config.format, level });
    if config.format == LogFormat::Json {
        std::panic::set_hook(Box::new(|panic| log_panic(panic, io::stderr)));
    }
}

/// Sets the level, if the log was started here.
pub(crate) fn set_level(level: &LogLevel) {
    if let Some(started) = STARTED.get() {
        // It fails only if the log is gone, which it never is.
        let _gone = started.level.reload(level.targets().clone());
    }
}

/// Whether JSON is logged.
pub(crate) fn is_json() -> bool {
    STARTED.get().is_some_and(|started| started.format == LogFormat::Json)
}

/// Logs an error in JSON at any level, even if the log was not started.
pub(crate) fn tell_json(message: &str) {
    at_any_level(io::stderr, || tracing::error!(target: "spile::serve", "{message}"));
}

/// One line of JSON, in the form that lines of the log have.
pub(crate) fn json_line(message: &str, members: Map<String, Value>) -> String {
    let now = UNIX_EPOCH + Duration::from_micros(SystemClock::new().wall().get());
    let timestamp = humantime::format_rfc3339_micros(now).to_string();
    let mut line = Map::new();
    line.insert("timestamp".to_owned(), timestamp.into());
    line.insert("level".to_owned(), "INFO".into());
    line.insert("message".to_owned(), message.into());
    line.insert("target".to_owned(), "spile::serve".into());
    line.extend(members);
    format!("{}\n", Value::Object(line))
}

/// Logs a panic.
fn log_panic(panic: &PanicHookInfo<'_>, to: impl for<'w> MakeWriter<'w> + Send + Sync + 'static) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let message =
        text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let location = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    at_any_level(to, || {
        tracing::error!(
            target: "spile::panic", thread = thread.name(), location, backtrace, "panicked: {message}"
        );
    });
}

fn at_any_level(to: impl for<'w> MakeWriter<'w> + Send + Sync + 'static, log: impl FnOnce()) {
    let lines = fmt().with_writer(to).log_internal_errors(false).json().flatten_event(true).finish();
    tracing::subscriber::with_default(lines, log);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_one_line_of_json() {
        let written = Written::default();
        let (to, usual) = (written.clone(), std::panic::take_hook());
        let this = std::thread::current().id();
        std::panic::set_hook(Box::new(move |panic| {
            // Other tests of this process may panic meanwhile.
            if std::thread::current().id() == this {
                let to = to.clone();
                log_panic(panic, move || to.clone());
            } else {
                usual(panic);
            }
        }));
        let caught = std::panic::catch_unwind(|| panic!("two\nlines \u{1b}[2J"));
        drop(std::panic::take_hook());
        assert!(caught.is_err());
        let text = String::from_utf8(written.0.lock().clone()).expect("text");
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &"spile::panic".into()));
        assert!(line["message"].as_str().is_some_and(|text| text.contains("two\nlines")), "{line}");
        assert!(line["location"].as_str().is_some_and(|text| text.contains("log.rs")), "{line}");
    }
}
