//! The command line: what was typed, and who carries it out.

mod ask;
mod banner;
mod buckets;
mod client;
mod config;
mod connection;
mod direct;
mod entries;
mod health;
mod outcome;
mod patience;
mod print;
mod serve;
mod shell;
mod top;

use clap::{Parser, Subcommand};

use self::ask::{AskArgs, Verb};
use self::buckets::BucketArgs;
use self::config::ConfigCommand;
use self::entries::{PlanCommand, TenantCommand};
use self::health::HealthArgs;
pub use self::outcome::Outcome;
use self::serve::ServeArgs;
use self::shell::Shell;
use self::top::TopArgs;

/// A distributed token-bucket rate limiter.
///
/// Exit codes: 0 done or allowed, 1 denied (`config check`: in quarantine), 2 something went wrong: also an answer that is
/// not in time, and a denial because the store failed (`fail_closed`).
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
    /// Spends a key's tokens, and says whether it may.
    Check(AskArgs),
    /// Says whether a key might, and spends nothing.
    Peek(AskArgs),
    /// Shows every bucket of a key.
    Inspect(BucketArgs),
    /// Makes every bucket of a key full again.
    Reset(BucketArgs),
    /// Lists, adds or removes tenants.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Lists, adds or removes plans.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Says whether a server is ready, for container engines.
    Health(HealthArgs),
    /// Shows a running server in the terminal.
    Top(TopArgs),
    /// Prints what both listeners take and answer, as `OpenAPI` 3.1.
    Openapi,
    /// Prints completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Prints the manual page.
    Man,
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Serve(args) => args.run().map(Outcome::done),
            Command::Config(command) => command.run(),
            Command::Check(args) => args.run(Verb::Check),
            Command::Peek(args) => args.run(Verb::Peek),
            Command::Inspect(args) => args.inspect().map(Outcome::done),
            Command::Reset(args) => args.reset().map(Outcome::done),
            Command::Tenant(command) => command.run().map(Outcome::done),
            Command::Plan(command) => command.run().map(Outcome::done),
            Command::Health(args) => args.run().map(Outcome::done),
            Command::Top(args) => args.run().map(Outcome::done),
            Command::Openapi => print::all(crate::openapi::json()).map(Outcome::done),
            Command::Completions { shell } => shell::completions(shell).map(Outcome::done),
            Command::Man => shell::man().map(Outcome::done),
        }
    }
}
