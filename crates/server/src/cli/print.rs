//! Prints what commands answer. A closed pipe, as in `spile config show | head`, is not a failure.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Context;

/// Prints a line.
pub(super) fn line(text: impl Display) -> anyhow::Result<()> {
    all(format_args!("{text}\n"))
}

/// Prints a text as it is.
pub(super) fn all(text: impl Display) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot print the answer"),
    }
}
