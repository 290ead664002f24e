//! A seed gives the same run each time.

use std::process::Command;

use spile_sim::fleet::Servers;
use spile_sim::scenario::Scenario;

use crate::{QUESTIONS, outcome};

/// State that an earlier run left in the interpreters or in this process changes nothing.
#[test]
fn a_seed_gives_the_same_trace_again() {
    let mut used = Servers::default();
    for seed in 0..24 {
        let scenario = Scenario::generate(seed, QUESTIONS);
        let first = outcome(&scenario, &mut used);
        let again = outcome(&scenario, &mut Servers::default());
        assert_eq!(first.trace_hash, again.trace_hash, "seed {seed}");
        assert_eq!((first.questions, first.executed), (again.questions, again.executed), "seed {seed}");
    }
}

/// Hash tables and channels draw seeds from the process, whose addresses and wall clock differ.
#[test]
fn a_seed_gives_the_same_trace_in_another_process() {
    for seed in ["1004", "30011", "31337", "40004"] {
        let first = printed(seed);
        assert!(first.contains("trace "), "{first}");
        assert_eq!(first, printed(seed), "seed {seed}");
    }
}

fn printed(seed: &str) -> String {
    let simulation = env!("CARGO_BIN_EXE_spile-sim");
    let output = Command::new(simulation)
        .args(["--seed", seed, "--quiet", "--no-reduce"])
        .output()
        .expect("the simulation starts");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn seeds_give_different_traces() {
    let mut servers = Servers::default();
    let mut hashes: Vec<_> =
        (0..24).map(|seed| outcome(&Scenario::generate(seed, QUESTIONS), &mut servers).trace_hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 24);
}
