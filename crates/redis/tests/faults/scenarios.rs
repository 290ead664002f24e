//! Every fault of the matrix that is brought about here, in its order.

mod cancelled;
mod clients;
mod clock;
mod cluster;
mod dead;
mod herd;
mod memory;
mod network;
mod process;
mod script;
mod sentinel;
mod state;

use crate::Scenario;
use crate::report::Row;

/// A name, and what to do under it.
type Listed = (&'static str, fn(&'static str) -> Row);

/// All of them.
pub(crate) fn all() -> Vec<Scenario> {
    let quick = [
        process::ALL,
        script::ALL,
        memory::ALL,
        clients::ALL,
        state::ALL,
        sentinel::ALL,
        cluster::ALL,
        dead::ALL,
        network::ALL,
        clock::ALL,
        herd::ALL,
        cancelled::ALL,
    ];
    let listed = |takes_long| move |&(name, run): &Listed| Scenario { name, run, takes_long };
    quick.into_iter().flatten().map(listed(false)).chain(process::LONG.iter().map(listed(true))).collect()
}
