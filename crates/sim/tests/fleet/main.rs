//! The simulation: a seed gives the same run each time, and runs that once broke a promise hold.

mod determinism;
mod traces;

use spile_sim::coverage::Coverage;
use spile_sim::fleet::{Outcome, Servers, run};
use spile_sim::scenario::Scenario;
use spile_sim::trace::Trace;

const QUESTIONS: usize = 300;

fn outcome(scenario: &Scenario, servers: &mut Servers) -> Outcome {
    run(scenario, servers, Trace::hashed(), &mut Coverage::default()).0
}

/// A scenario is tried with this many seeds, because other interleavings show the same defect once the code draws other random numbers.
const SEEDS: u64 = 300;

fn outcomes(scenario: &Scenario) -> impl Iterator<Item = Outcome> {
    let mut servers = Servers::default();
    let seeds = (0..SEEDS).map(|nth| Scenario { seed: scenario.seed.wrapping_add(nth), ..scenario.clone() });
    seeds.map(move |scenario| run(&scenario, &mut servers, Trace::off(), &mut Coverage::default()).0)
}

/// The scenario breaks no promise.
fn holds(scenario: &Scenario) {
    for outcome in outcomes(scenario) {
        assert!(outcome.broken.is_none(), "{:?}", outcome.broken);
    }
}
