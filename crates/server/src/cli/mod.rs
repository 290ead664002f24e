//! The command line: parses the arguments and runs the command.

mod admin;
mod ask;
mod banner;
mod buckets;
mod client;
mod config;
mod connection;
mod convert;
mod direct;
mod entries;
mod explain;
mod health;
mod outcome;
mod patience;
mod plan;
mod print;
mod reload;
mod replay;
mod rule;
mod serve;
mod server_url;
mod shell;
mod tenant;
mod top;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use self::ask::{AskArgs, Verb};
use self::buckets::BucketArgs;
use self::config::ConfigCommand;
use self::convert::ConvertCommand;
use self::explain::ExplainArgs;
use self::health::HealthArgs;
pub use self::outcome::CommandOutcome;
use self::plan::PlanCommand;
use self::reload::ReloadArgs;
use self::replay::ReplayArgs;
use self::rule::RuleCommand;
use self::serve::ServeArgs;
use self::shell::Shell;
use self::tenant::TenantCommand;
use self::top::TopArgs;
use crate::observe::{build_info, log};

/// A distributed token-bucket rate limiter.
///
/// Exit codes: 0 done or allowed, 1 denied (`config check`: in quarantine; `convert`: not all can be said), 2 something went wrong: also an answer that is
/// not in time, and a denial because the store failed (`fail_closed`).
#[derive(Debug, Parser)]
#[command(name = "spile", version, long_version = build_info::long_version(), propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

/// The commands of `spile`.
#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Runs the service.
    Serve(ServeArgs),
    /// Checks, shows or starts a configuration file.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Turns limits of another program into a configuration.
    #[command(subcommand)]
    Convert(ConvertCommand),
    /// Spends a key's tokens, and reports whether it may.
    Check(AskArgs),
    /// Reports whether a key might, and spends nothing.
    Peek(AskArgs),
    /// Shows every bucket of a key.
    Inspect(BucketArgs),
    /// Reports why a key is limited: the rule, its buckets, its last denials, and what to change.
    Explain(ExplainArgs),
    /// Makes every bucket of a key full again.
    Reset(BucketArgs),
    /// Lists, shows, adds, changes or removes tenants.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Lists, shows, puts or removes plans.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Lists, shows, puts or removes rules.
    #[command(subcommand)]
    Rule(RuleCommand),
    /// Has a server read its file again.
    Reload(ReloadArgs),
    /// Runs an access log through a configuration: who would have been limited, when, and by which rule.
    Replay(ReplayArgs),
    /// Reports whether a server is ready, for container engines.
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
    /// Prints the manual page, or writes the pages of all commands to a folder.
    Man {
        /// The folder, which is made if it is not there.
        folder: Option<PathBuf>,
    },
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<CommandOutcome> {
        match self.command {
            CliCommand::Serve(args) => args.run().map(CommandOutcome::done),
            CliCommand::Config(command) => command.run(),
            CliCommand::Convert(command) => command.run(),
            CliCommand::Check(args) => args.run(Verb::Check),
            CliCommand::Peek(args) => args.run(Verb::Peek),
            CliCommand::Inspect(args) => args.inspect().map(CommandOutcome::done),
            CliCommand::Explain(args) => args.run().map(CommandOutcome::done),
            CliCommand::Reset(args) => args.reset().map(CommandOutcome::done),
            CliCommand::Tenant(command) => command.run().map(CommandOutcome::done),
            CliCommand::Plan(command) => command.run().map(CommandOutcome::done),
            CliCommand::Rule(command) => command.run().map(CommandOutcome::done),
            CliCommand::Reload(args) => args.run().map(CommandOutcome::done),
            CliCommand::Replay(args) => args.run().map(CommandOutcome::done),
            CliCommand::Health(args) => args.run().map(CommandOutcome::done),
            CliCommand::Top(args) => args.run().map(CommandOutcome::done),
            CliCommand::Openapi => print::all(crate::openapi::json()).map(CommandOutcome::done),
            CliCommand::Completions { shell } => shell::completions(shell).map(CommandOutcome::done),
            CliCommand::Man { folder } => shell::man(folder.as_deref()).map(CommandOutcome::done),
        }
    }
}

/// Writes an error to stderr: as a line of JSON if `serve` was asked to log in JSON. If even that cannot be written, the
/// exit code still reports it.
pub fn complain(what: &str) {
    if log::is_json() || asks_for_json(std::env::args(), std::env::var("SPILE_LOG_FORMAT").ok().as_deref()) {
        log::tell_json(what);
    } else {
        let _written = writeln!(io::stderr(), "spile: {what}");
    }
}

/// True if the arguments are those of a server that logs in JSON, even if they cannot be parsed.
fn asks_for_json(arguments: impl IntoIterator<Item = String>, variable: Option<&str>) -> bool {
    let arguments: Vec<String> = arguments.into_iter().skip(1).collect();
    let flag = arguments.iter().enumerate().find_map(|(at, argument)| {
        match argument.strip_prefix("--log-format")? {
            "" => arguments.get(at + 1).map(String::as_str),
            value => value.strip_prefix('='),
        }
    });
    arguments.iter().any(|argument| argument == "serve") && flag.or(variable) == Some("json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_is_asked_for_json_complains_in_json() {
        for (arguments, variable, expected) in [
            ("spile serve --log-format json --htp x", None, true),
            ("spile serve --log-format=json", Some("text"), true),
            ("spile serve --nonsense", Some("json"), true),
            ("spile serve --log-format text", Some("json"), false),
            ("spile serve --log-format", None, false),
            ("spile serve", None, false),
            ("spile check a --plan free", Some("json"), false),
        ] {
            let words = arguments.split(' ').map(str::to_owned);
            assert_eq!(asks_for_json(words, variable), expected, "{arguments} {variable:?}");
        }
    }
}
