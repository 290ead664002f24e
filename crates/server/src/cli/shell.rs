//! Shell completions and manual pages.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
pub(super) use clap_complete::Shell;

use super::{Cli, print};

/// Prints completions.
pub(super) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "spile", &mut script);
    print::all(String::from_utf8(script)?)
}

/// Prints the manual page, or writes that of each command to a folder: `spile.1`, `spile-serve.1`, `spile-config-check.1`.
pub(super) fn man(folder: Option<&Path>) -> anyhow::Result<()> {
    let mut command = Cli::command().disable_help_subcommand(true);
    if let Some(folder) = folder {
        let name = folder.display();
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {name}"))?;
        clap_mangen::generate_to(command, folder).with_context(|| format!("cannot write to {name}"))?;
        return print::line(format_args!("wrote the manual pages of all commands to {name}"));
    }
    command.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    print::all(String::from_utf8(page)?)
}
