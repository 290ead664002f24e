//! What the server says about itself, on stderr. Keys of callers are never part of it.

use clap::ValueEnum;

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object each, for machines.
    Json,
}

/// Starts to log. Only the first call in a process counts.
pub(crate) fn start(format: LogFormat) {
    // A line that cannot be written is lost. Saying so on stderr would panic where stderr is what cannot be written to.
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).log_internal_errors(false);
    // A process that already logs goes on as it does.
    let _already = match format {
        LogFormat::Text => log.with_ansi(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}
