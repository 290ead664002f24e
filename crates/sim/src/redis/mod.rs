//! A model of a Redis server: its data, its commands and its scripts, without a network.
//!
//! It behaves as Redis 7 does, and `tests/redis_model` compares it with real servers. Scripts are the real ones, run by the same
//! version of Lua. Not modelled: users (every password is accepted), more than one database, eviction, replication, publishing and
//! slots that move. Nothing in it depends on real time, addresses or hashes, so that equal commands get equal replies.

mod cluster;
mod commands;
mod data;
mod number;
mod refusals;
mod reply;
mod script;
mod sorted_set;
mod state;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use spile_resp::Value;

pub use self::cluster::{ClusterNode, ClusterView, SLOTS, slot_of};
use self::commands::Run;
pub use self::data::Data;
pub use self::refusals::Refusals;
use self::reply::CommandResult;
use self::script::Scripts;
use self::state::State;

/// One modelled server. Not `Send`, because it holds the Lua interpreter.
pub struct Server {
    /// Shared with the interpreter, whose scripts run commands.
    state: Rc<RefCell<State>>,
    scripts: Scripts,
}

impl Server {
    /// A server without data. Creating the interpreter takes a moment: [`clear`](Self::clear) a server to use it again.
    ///
    /// # Panics
    /// If the interpreter cannot be created.
    pub fn new() -> Self {
        let state = Rc::default();
        let scripts = Scripts::new(&state).expect("a Lua interpreter");
        Self { state, scripts }
    }

    /// Executes one command in this moment, in microseconds since the epoch. The time may step in both directions between
    /// commands.
    pub fn execute(&mut self, now_us: u64, command: &[&[u8]]) -> Value {
        reply::Reply::from(self.run(now_us, command)).into()
    }

    fn run(&mut self, now_us: u64, words: &[&[u8]]) -> CommandResult {
        if words.is_empty() {
            return Err("ERR empty command".into());
        }
        let mut state = self.state.borrow_mut();
        state.now_us = now_us;
        match state.admit(words)?.run {
            Run::InScripts(run) | Run::OutsideScripts(run) => run(&mut state, words),
            Run::Script(command) => {
                state.script_wrote = false;
                // The script borrows it for every command.
                drop(state);
                self.scripts.execute(command, words)
            }
        }
    }

    /// A snapshot of the data.
    pub fn data(&self) -> Data {
        self.state.borrow().data.clone()
    }

    /// Replaces the data: after a failover that lost writes, or a restart.
    pub fn restore(&mut self, data: Data) {
        self.state.borrow_mut().data = data;
    }

    /// Makes it an empty standalone server that refuses nothing. Keeps the interpreter and the compiled scripts.
    pub fn clear(&mut self) {
        *self.state.borrow_mut() = State::default();
        self.flush_scripts();
    }

    /// Forgets the scripts that were loaded.
    pub fn flush_scripts(&mut self) {
        self.scripts.flush();
    }

    /// Replaces the refusals.
    pub fn refuse(&mut self, refusals: Refusals) {
        self.state.borrow_mut().refusals = refusals;
    }

    /// Makes it a node of a cluster, or a standalone server.
    pub fn cluster(&mut self, view: Option<ClusterView>) {
        self.state.borrow_mut().cluster = view;
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("state", &self.state).finish_non_exhaustive()
    }
}
