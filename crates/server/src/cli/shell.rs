//! What shells and readers of manuals need to know about the command line.

use clap::CommandFactory;
pub(super) use clap_complete::Shell;

use super::{Cli, print};

/// Prints completions.
pub(super) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "spile", &mut script);
    print::all(String::from_utf8(script)?)
}

/// Prints the manual page.
pub(super) fn man() -> anyhow::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    print::all(String::from_utf8(page)?)
}
