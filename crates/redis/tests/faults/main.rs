//! The fault matrix: breaks a real Redis in every way we know while callers decide, and checks what must hold.
//!
//! Scenarios run one after another, for they measure time. Prints a table, and ends in failure where a promise was
//! broken:
//!
//! ```text
//! cargo test -p spile-redis --test faults                   every scenario that takes seconds
//! cargo test -p spile-redis --test faults -- sentinel       those whose name contains a word
//! cargo test -p spile-redis --test faults -- "frozen 30 s"  the one that takes half a minute
//! ```

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

mod callers;
mod counted;
mod findings;
mod report;
mod scenarios;
mod stall;
mod trial;
mod witness;

use std::process::ExitCode;

use report::Row;

/// One fault, and how it is brought about.
pub(crate) struct Scenario {
    /// Its line in the matrix, and which variant.
    pub(crate) name: &'static str,
    pub(crate) run: fn(&'static str) -> Row,
    /// Whether it is only run by its name.
    pub(crate) takes_long: bool,
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wanted = |scenario: &&Scenario| match words.as_slice() {
        [] => !scenario.takes_long,
        words => words.iter().any(|word| scenario.name.contains(word.as_str())),
    };
    let mut broken = 0;
    println!("{}", report::head());
    for scenario in scenarios::all().iter().filter(wanted) {
        let row = (scenario.run)(scenario.name);
        println!("{row}");
        broken += row.breaches.len();
    }
    if broken == 0 {
        ExitCode::SUCCESS
    } else {
        println!("\n{broken} promises broken");
        ExitCode::FAILURE
    }
}
