//! What shells and readers of manuals need to know about the command line.

use std::io;

use clap::CommandFactory;
pub(super) use clap_complete::Shell;

use super::Cli;

/// Prints completions.
pub(super) fn completions(shell: Shell) {
    clap_complete::generate(shell, &mut Cli::command(), "spile", &mut io::stdout());
}

/// Prints the manual page.
pub(super) fn man() -> anyhow::Result<()> {
    Ok(clap_mangen::Man::new(Cli::command()).render(&mut io::stdout())?)
}
