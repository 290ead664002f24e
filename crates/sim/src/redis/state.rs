//! The state of a server outside its interpreter, and the checks before a command runs.

use super::cluster::ClusterView;
use super::commands::{self, Command, Effect, Run};
use super::data::{Data, Kind, Stored};
use super::refusals::Refusals;
use super::reply::{CommandResult, ErrorText};

/// The state of a server.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) data: Data,
    /// The time of the current command. It does not advance while a script runs.
    pub(super) now_us: u64,
    pub(super) refusals: Refusals,
    pub(super) cluster: Option<ClusterView>,
    /// Whether the current script has run a command that writes, even one that changed nothing.
    pub(super) script_wrote: bool,
}

const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
const CANNOT_SAVE: &str =
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.";
const LACKS_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
const SCRIPT_DENIED: &str = "ERR The user executing the script can't run this command or subcommand";

impl State {
    pub(super) fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    /// Checks a command of a client, and finds it.
    pub(super) fn admit(&self, words: &[&[u8]]) -> Result<&'static Command, ErrorText> {
        let Some(command) = commands::find(words[0]) else {
            let name = String::from_utf8_lossy(words[0]);
            return Err(format!("ERR unknown command '{name}', with args beginning with: ").into());
        };
        if !command.accepts(words.len()) {
            let name = command.name;
            return Err(format!("ERR wrong number of arguments for '{name}' command").into());
        }
        if self.refusals.acl_denied.contains(command.name) {
            let name = command.name;
            return Err(format!("NOPERM this user has no permissions to run the '{name}' command").into());
        }
        if let Some(cluster) = &self.cluster {
            cluster.check(command.keys(words))?;
        }
        if command.effect == Effect::Grow && self.refusals.out_of_memory {
            return Err(OUT_OF_MEMORY.into());
        }
        self.admit_write(command)?;
        if self.refusals.cannot_save && command.name == "ping" {
            // Redis lets clients that only ping notice it.
            return Err(CANNOT_SAVE.into());
        }
        Ok(command)
    }

    /// Runs a command of a script.
    pub(super) fn run_in_script(&mut self, words: &[&[u8]]) -> CommandResult {
        let Some(command) = commands::find(words[0]) else {
            return Err("ERR Unknown Redis command called from script".into());
        };
        if !command.accepts(words.len()) {
            return Err("ERR Wrong number of args calling Redis command from script".into());
        }
        let Run::InScripts(run) = command.run else {
            return Err("ERR This Redis command is not allowed from script".into());
        };
        if !self.refusals.acl_denied.is_empty() && self.refusals.acl_denied.contains(command.name) {
            return Err(SCRIPT_DENIED.into());
        }
        self.admit_write(command)?;
        if self.refusals.out_of_memory && command.effect == Effect::Grow && !self.script_wrote {
            return Err(OUT_OF_MEMORY.into());
        }
        self.script_wrote |= command.effect != Effect::Read;
        if self.cluster.as_ref().is_some_and(|cluster| cluster.check(command.keys(words)).is_err()) {
            return Err("ERR Script attempted to access a non local key in a cluster node".into());
        }
        run(self, words)
    }

    fn admit_write(&self, command: &Command) -> Result<(), ErrorText> {
        let refusals = &self.refusals;
        let refused = [
            (refusals.cannot_save, CANNOT_SAVE),
            (refusals.lacks_replicas, LACKS_REPLICAS),
            (refusals.read_only, READ_ONLY),
        ];
        let refused = refused.iter().find(|(refuses, _)| *refuses && command.effect != Effect::Read);
        refused.map_or(Ok(()), |(_, why)| Err((*why).into()))
    }

    /// Deletes a key that has expired. A replica keeps it, but does not return it.
    fn expire(&mut self, key: &[u8]) -> bool {
        let has_expired = self.data.has_expired(key, self.now_ms());
        if has_expired && !self.refusals.read_only {
            self.data.remove(key);
        }
        has_expired
    }

    /// Returns whether a key exists now.
    pub(super) fn exists(&mut self, key: &[u8]) -> bool {
        self.stored(key).is_some()
    }

    /// The value of a key, of any type.
    pub(super) fn stored(&mut self, key: &[u8]) -> Option<&Stored> {
        if self.expire(key) { None } else { self.data.stored(key) }
    }

    /// The value of a key, if it exists.
    pub(super) fn read<T: Kind>(&mut self, key: &[u8]) -> Result<Option<&T>, ErrorText> {
        if self.expire(key) { Ok(None) } else { self.data.read(key) }
    }

    /// The string of a key, if it exists.
    pub(super) fn text(&mut self, key: &[u8]) -> Result<Option<&[u8]>, ErrorText> {
        if self.expire(key) { Ok(None) } else { self.data.text(key) }
    }

    /// Changes the value of a key, which begins empty if the key does not exist.
    pub(super) fn change<T: Kind, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, ErrorText> {
        self.expire(key);
        self.data.change(key, change)
    }
}
