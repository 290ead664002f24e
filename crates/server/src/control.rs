//! Who changes what the server runs with, while it runs: all of a change, or none of it.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use spile_observe::Watch;
use tokio::sync::watch;

use crate::config::{Config, ConfigError, LoadError};
use crate::decider::Decider;
use crate::document;
use crate::metrics::Telemetry;
use crate::registry::{Entries, Kind, RegistryFile, RegistryFileError};

/// The one place that changes go through. One at a time: a second writer sees what the first one wrote.
pub(crate) struct Control {
    decider: Arc<Decider>,
    state: Mutex<State>,
    /// What is in force, for whoever follows it.
    in_force: watch::Sender<Arc<Config>>,
    /// What the server started with: what only a restart changes is still so.
    started: Arc<Config>,
    watch: Watch,
}

struct State {
    entries: Entries,
    file: RegistryFile,
    /// Why the last reload was refused, until one is not.
    refusal: Option<String>,
}

/// What must be true of an entry for it to be changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Condition {
    /// Nothing.
    Always,
    /// It is there, and this is its tag: nobody has changed it since.
    Unchanged(String),
    /// It is not there.
    Absent,
}

/// An entry as it is in force.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) document: Value,
    pub(crate) tag: String,
}

impl Control {
    /// Opens the registry, and puts its entries above the configuration.
    pub(crate) fn new(
        config: &Config,
        decider: Arc<Decider>,
        telemetry: &Telemetry,
    ) -> Result<Self, ControlError> {
        let file = RegistryFile::open(config.admin.registry_file.as_deref())?;
        let entries = file.read()?;
        let config = if entries.is_empty() { config.clone() } else { config.with_entries(&entries)? };
        decider.replace(&config);
        let started = Arc::new(config);
        Ok(Self {
            decider,
            state: Mutex::new(State { entries, file, refusal: None }),
            in_force: watch::Sender::new(Arc::clone(&started)),
            started,
            watch: telemetry.watch().clone(),
        })
    }

    /// What the server runs with.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.in_force.borrow())
    }

    /// What the server runs with, now and from every change on.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<Config>> {
        self.in_force.subscribe()
    }

    /// The settings that have changed since the server started and wait for a restart.
    pub(crate) fn needing_restart(&self) -> Vec<&'static str> {
        self.started.needing_restart(&self.in_force.borrow())
    }

    /// Why the last reload was refused, if it was.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.state.lock().refusal.clone()
    }

    /// Reads the file once more. One that does not work changes nothing, and is remembered.
    pub(crate) fn reload(&self) -> Result<(), LoadError> {
        let mut state = self.state.lock();
        match self.config().read_again(&state.entries) {
            Ok(config) => {
                self.put_to_work(config);
                state.refusal = None;
                self.watch.config_reloaded();
                tracing::info!(target: "spile::reload", "configuration applied");
                for setting in self.needing_restart() {
                    tracing::warn!(target: "spile::reload", "{setting} changed: a restart puts it in force");
                }
                Ok(())
            }
            Err(why) => {
                self.watch.config_refused(why.to_string());
                state.refusal = Some(why.to_string());
                tracing::error!(target: "spile::reload", "configuration refused, the old one stays: {why}");
                Err(why)
            }
        }
    }

    /// Every entry of a kind, by name.
    pub(crate) fn list(&self, kind: Kind) -> Vec<Entry> {
        let state = self.state.lock();
        document::all(&self.config(), &state.entries, kind).into_iter().map(|(_, entry)| entry).collect()
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<Entry> {
        self.state.lock().find(&self.config(), kind, name)
    }

    /// Puts the document in place of whatever has its name.
    pub(crate) fn put(
        &self,
        kind: Kind,
        name: &str,
        document: Value,
        condition: &Condition,
    ) -> Result<Entry, ControlError> {
        let mut state = self.state.lock();
        state.check(&self.config(), kind, name, condition)?;
        let mut entries = state.entries.clone();
        entries.put(kind, name, document);
        self.apply(&mut state, entries, kind, name)?;
        tracing::info!(target: "spile::audit", action = "put", kind = kind.as_str(), name, "changed");
        state.find(&self.config(), kind, name).ok_or(ControlError::Missing)
    }

    /// Takes the registry's entry away. What the file says about that name holds again.
    pub(crate) fn delete(&self, kind: Kind, name: &str, condition: &Condition) -> Result<(), ControlError> {
        let mut state = self.state.lock();
        state.check(&self.config(), kind, name, condition)?;
        let mut entries = state.entries.clone();
        if entries.remove(kind, name).is_none() {
            let in_file = state.find(&self.config(), kind, name).is_some();
            return Err(if in_file { ControlError::InFile } else { ControlError::Missing });
        }
        self.apply(&mut state, entries, kind, name)?;
        tracing::info!(target: "spile::audit", action = "delete", kind = kind.as_str(), name, "changed");
        Ok(())
    }

    /// Checks, keeps and only then puts to work.
    fn apply(&self, state: &mut State, entries: Entries, kind: Kind, name: &str) -> Result<(), ControlError> {
        let config = self.config().with_entries(&entries)?;
        state.file.write(kind, name, entries.get(kind, name))?;
        self.put_to_work(config);
        state.entries = entries;
        Ok(())
    }

    fn put_to_work(&self, config: Config) {
        self.decider.replace(&config);
        self.in_force.send_replace(Arc::new(config));
    }
}

impl State {
    fn find(&self, config: &Config, kind: Kind, name: &str) -> Option<Entry> {
        let mut entries = document::all(config, &self.entries, kind);
        let at = entries.iter().position(|(known, _)| known == name)?;
        Some(entries.swap_remove(at).1)
    }

    fn check(
        &self,
        config: &Config,
        kind: Kind,
        name: &str,
        condition: &Condition,
    ) -> Result<(), ControlError> {
        let standing = self.find(config, kind, name);
        match (condition, standing) {
            (Condition::Always, _) | (Condition::Absent, None) => Ok(()),
            (Condition::Unchanged(tag), Some(entry)) if entry.tag == *tag => Ok(()),
            _ => Err(ControlError::Changed),
        }
    }
}

/// Why a change was not made. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error("nothing has this name")]
    Missing,
    #[error("this stands in the file: change it there")]
    InFile,
    #[error("somebody else has changed this since: read it again")]
    Changed,
    #[error(transparent)]
    Wrong(#[from] ConfigError),
    #[error(transparent)]
    Kept(#[from] RegistryFileError),
}
