//! The command line: what was typed, and who carries it out.

mod config;
mod serve;

use clap::{Parser, Subcommand};

use self::config::ConfigCommand;
use self::serve::ServeArgs;

/// A distributed token-bucket rate limiter.
#[derive(Debug, Parser)]
#[command(name = "spile", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What `spile` can do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the service.
    Serve(ServeArgs),
    /// Checks, shows or starts a configuration file.
    #[command(subcommand)]
    Config(ConfigCommand),
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Serve(args) => args.run(),
            Command::Config(command) => command.run(),
        }
    }
}
