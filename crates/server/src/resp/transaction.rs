//! `MULTI` to `EXEC`: commands that wait, and then run one after the other.
//!
//! Other clients' commands may run in between, and each decision is spent by itself: what a transaction gives is the
//! order, and one answer for all of it.

/// Commands that may wait.
const MOST_COMMANDS: usize = 1_000;
/// Bytes of commands that may wait.
const MOST_BYTES: usize = 1 << 20;

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    commands: Vec<Vec<Vec<u8>>>,
    bytes: usize,
    /// Whether one of them was refused: then none runs.
    broken: bool,
}

impl Transaction {
    /// Keeps a command, unless too many wait.
    pub(super) fn queue(&mut self, words: &[Vec<u8>]) -> bool {
        self.bytes += words.iter().map(Vec::len).sum::<usize>();
        if self.commands.len() >= MOST_COMMANDS || self.bytes > MOST_BYTES {
            self.broken = true;
            return false;
        }
        self.commands.push(words.to_vec());
        true
    }

    /// Keeps the rest from running, because one command was refused.
    pub(super) const fn abort(&mut self) {
        self.broken = true;
    }

    /// The commands, unless one was refused.
    pub(super) fn into_commands(self) -> Option<Vec<Vec<Vec<u8>>>> {
        (!self.broken).then_some(self.commands)
    }
}
