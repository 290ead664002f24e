//! How a command ended if nothing failed.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CommandOutcome {
    /// It did what it was asked to, or the key may.
    Done,
    /// The key may not.
    Denied,
    /// Nothing was decided: the store failed, and the policy is to refuse without it.
    Undecided,
    /// The faults were printed as JSON.
    Refused,
    /// A file works, and entries of the registry would be in quarantine with it.
    Quarantined,
    /// Something was converted, and not all of it could be said.
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
