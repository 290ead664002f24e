//! How a command ended if nothing failed.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CommandOutcome {
    /// The command succeeded, or the key is allowed.
    Done,
    /// The key is denied.
    Denied,
    /// Nothing was decided: the store failed, and the failure policy is to deny.
    Undecided,
    /// The faults were printed as JSON.
    Refused,
    /// The file is valid, but entries of the registry would be in quarantine with it.
    Quarantined,
    /// The conversion is incomplete, because the configuration cannot express all of it.
    Incomplete,
}

impl CommandOutcome {
    pub(super) const fn done((): ()) -> Self {
        Self::Done
    }
}

impl From<CommandOutcome> for ExitCode {
    fn from(outcome: CommandOutcome) -> Self {
        match outcome {
            CommandOutcome::Done => Self::SUCCESS,
            CommandOutcome::Denied | CommandOutcome::Quarantined | CommandOutcome::Incomplete => {
                Self::from(1)
            }
            CommandOutcome::Undecided | CommandOutcome::Refused => Self::from(2),
        }
    }
}
