//! Three processes take permits of one Redis while it and they are broken, and an independent judge counts who holds what.
//!
//! Prints a table, and ends in failure if ever more than the limit are held, if a permit is released twice, or if one is left
//! after its hold time:
//!
//! ```text
//! cargo test -p spile-redis --test permits                      some ten thousand acquisitions
//! cargo test -p spile-redis --test permits -- cluster           those whose name contains a word
//! cargo test --release -p spile-redis --test permits -- 1000000    a million in each scenario
//! ```

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

mod chaos;
mod judge;
mod worker;

use std::process::ExitCode;

/// The permits of each key, the keys, and how long a permit is held.
pub(crate) const PERMITS: u32 = 3;
pub(crate) const KEYS: usize = 4;
pub(crate) const HOLD_MS: u64 = 1_000;

/// The limit, by which a permit is stored in Redis.
pub(crate) const LIMIT: &str = "jobs";

/// How many acquisitions each scenario makes, if no other number is given.
const ACQUISITIONS: u64 = 8_000;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let [role, url, seed] = words.as_slice()
        && role == worker::ROLE
    {
        worker::work(url, seed.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    let acquisitions = words.iter().find_map(|word| word.parse().ok()).unwrap_or(ACQUISITIONS);
    let names: Vec<_> = words.iter().filter(|word| word.parse::<u64>().is_err()).collect();
    let wanted = |scenario: &chaos::Scenario| {
        names.is_empty() || names.iter().any(|name| scenario.name.contains(name.as_str()))
    };
    println!(
        "| scenario | acquisitions | most held | of | lost | left after the hold time | broken promises |"
    );
    println!("|---|--:|--:|--:|--:|--:|---|");
    let mut holds = true;
    for scenario in chaos::all().into_iter().filter(wanted) {
        let row = (scenario.run)(scenario.name, acquisitions);
        println!("{row}");
        holds &= row.breaches.is_empty();
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
