//! The settings of the moment, and everybody who works by them.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use spile_policy::Policy;
use tokio::sync::watch;

use crate::gateway::BuildError;
use crate::gateway::Roads;
use crate::gateway::Settings;
use crate::gateway::Setup;

/// Hands settings to workers, and new ones to all of them at once.
pub(crate) struct Live {
    state: Mutex<State>,
    changes: watch::Sender<()>,
}

struct State {
    setup: Arc<Setup>,
    workers: Vec<Weak<ArcSwap<Roads>>>,
}

impl Live {
    pub(crate) fn new(settings: Settings) -> Result<Self, BuildError> {
        let setup = Arc::new(Setup::new(settings, None)?);
        let state = State { setup, workers: Vec::new() };
        Ok(Self { state: Mutex::new(state), changes: watch::Sender::new(()) })
    }

    pub(crate) fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.state.lock().setup)
    }

    /// The roads of a new worker. They change under it when settings do.
    pub(crate) fn join(&self) -> Arc<ArcSwap<Roads>> {
        let mut state = self.state.lock();
        let roads = Arc::new(ArcSwap::from_pointee(Roads::new(Arc::clone(&state.setup), None)));
        state.workers.push(Arc::downgrade(&roads));
        roads
    }

    /// Puts these settings in place of those there are, or changes nothing. Requests under way end as they began.
    pub(crate) fn replace(&self, settings: Settings) -> Result<(), BuildError> {
        let mut state = self.state.lock();
        let setup = Setup::new(settings, Some(&state.setup))?;
        state.put_to_work(setup);
        self.changes.send_replace(());
        Ok(())
    }

    /// Replaces the policy. Those who follow routes are not told: upstreams are the same.
    pub(crate) fn replace_policy(&self, policy: Arc<Policy>) {
        let mut state = self.state.lock();
        let setup = state.setup.under(policy);
        state.put_to_work(setup);
    }

    /// Hears of every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

impl State {
    fn put_to_work(&mut self, setup: Setup) {
        let setup = Arc::new(setup);
        self.setup = Arc::clone(&setup);
        self.workers.retain(|worker| {
            let Some(roads) = worker.upgrade() else { return false };
            let new = Roads::new(Arc::clone(&setup), Some(&roads.load()));
            roads.store(Arc::new(new));
            true
        });
    }
}
