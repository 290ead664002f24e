//! The binary `spile`.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use spile_server::cli::{Cli, complain};
use spile_server::{mask, mask_typed};

/// mimalloc suits requests, which make many small, short-lived allocations on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code of anything that went wrong; 1 means "denied".
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(why) => return explain(&why),
    };
    match cli.run() {
        Ok(outcome) => outcome.into(),
        Err(why) => {
            complain(&mask(&format!("{why:#}")));
            ExitCode::from(FAILED)
        }
    }
}

/// Prints help if it was asked for. A bad flag gets one line.
fn explain(why: &clap::Error) -> ExitCode {
    if !why.use_stderr() {
        // If even the help cannot be printed, there is nothing else to do.
        let _printed = why.print();
        return ExitCode::SUCCESS;
    }
    let mut text = why.to_string();
    // The value may be a secret in the wrong place.
    if let Some(ContextValue::String(typed)) = why.get(ContextKind::InvalidValue) {
        text = text.replace(typed.as_str(), &mask_typed(typed));
    }
    let text = mask(&text);
    // The error ends at the first empty line; usage and tips follow.
    let said: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let said = said.join(" ");
    let (said, meant) = (said.trim_start_matches("error: "), did_you_mean(why));
    complain(&format!("{said}{meant}; see `{} --help`", command()));
    ExitCode::from(FAILED)
}

/// The command that was typed, as far as it is one: `spile tenant add`.
fn command() -> String {
    let (mut typed, mut known) = ("spile".to_owned(), Cli::command());
    for word in std::env::args_os().skip(1) {
        let Some(next) = known.find_subcommand(&word).cloned() else { break };
        typed = format!("{typed} {}", next.get_name());
        known = next;
    }
    typed
}

/// The suggestion of clap.
fn did_you_mean(why: &clap::Error) -> String {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let guess = kinds.into_iter().find_map(|kind| match why.get(kind)? {
        ContextValue::String(guess) => Some(guess.clone()),
        ContextValue::Strings(guesses) => guesses.first().cloned(),
        _ => None,
    });
    guess.map_or_else(String::new, |guess| format!(": did you mean `{guess}`?"))
}
