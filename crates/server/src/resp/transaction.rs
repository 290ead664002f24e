//! `MULTI` to `EXEC`: commands that are queued, and then run one after the other.
//!
//! Commands of other clients may run in between, and each decision is spent by itself. A transaction guarantees the
//! order, and has one reply.

/// The most queued commands.
const MOST_COMMANDS: usize = 1_000;
/// The most bytes of queued commands.
const MOST_BYTES: usize = 1 << 20;

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    commands: Vec<Vec<Vec<u8>>>,
    bytes: usize,
    /// Whether a command was rejected. Then none runs.
    broken: bool,
}

impl Transaction {
    /// Queues a command. Returns false, and aborts the transaction, if it is too large.
    pub(super) fn queue(&mut self, words: &[Vec<u8>]) -> bool {
        self.bytes += words.iter().map(Vec::len).sum::<usize>();
        if self.commands.len() >= MOST_COMMANDS || self.bytes > MOST_BYTES {
            self.broken = true;
            return false;
        }
        self.commands.push(words.to_vec());
        true
    }

    /// Makes `EXEC` fail, because a command was rejected.
    pub(super) const fn abort(&mut self) {
        self.broken = true;
    }

    /// The commands. `None` if one was rejected.
    pub(super) fn into_commands(self) -> Option<Vec<Vec<Vec<u8>>>> {
        (!self.broken).then_some(self.commands)
    }
}
