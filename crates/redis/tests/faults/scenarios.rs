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
    let quick = quick.into_iter().flatten().map(listed(false));
    let mut all: Vec<_> = quick.chain(process::LONG.iter().map(listed(true))).collect();
    all.sort_by_key(|scenario| line_of(scenario.name));
    all
}

/// The line of the matrix, which every name begins with.
fn line_of(name: &str) -> u8 {
    name.split(' ').next().and_then(|line| line.parse().ok()).unwrap_or(u8::MAX)
}
