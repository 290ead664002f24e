//! The model of Redis replies as real servers do: random commands, scripts and calls of the store run on both, and their replies, what
//! is stored and when it expires are equal.
//!
//! A trace is drawn from a seed, which every failure prints; `SPILE_SEED` replays it.

mod calls;
mod cluster;
mod commands;
mod expiry;
mod pair;
mod portable;
mod question;
mod scripts;
mod server;
mod speed;

use fastrand::Rng;
use spile_testkit::redis::Flavour;

use crate::calls::Calls;
use crate::pair::{Mood, Pair};

const COMMANDS: usize = 6_000;
const CALLS: usize = 3_000;

fn seed() -> u64 {
    let seed = std::env::var("SPILE_SEED").ok().and_then(|text| text.parse().ok());
    seed.unwrap_or_else(|| fastrand::u64(..))
}

fn commands_agree(flavour: Flavour) {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let mut pair = Pair::start(flavour, seed);
    for step in 0..COMMANDS {
        if step % 50 == 0 {
            pair.be(Mood::draw(&mut random));
        }
        commands::run(&mut pair, &mut random);
        pair.compare_data(commands::KEYS.iter().map(|key| key.as_bytes().to_vec()));
    }
}

fn calls_agree(flavour: Flavour) {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let mut pair = Pair::start(flavour, seed);
    let mut calls = Calls::new();
    for step in 0..CALLS {
        if step % 25 == 0 {
            pair.be(Mood::draw(&mut random));
        }
        calls.run(&mut pair, &mut random);
    }
    calls.expect_all_kinds();
}

#[test]
fn commands_agree_with_redis_7() {
    commands_agree(Flavour::Redis7);
}

#[test]
fn commands_agree_with_redis_6_2() {
    commands_agree(Flavour::Redis62);
}

#[test]
fn commands_agree_with_valkey_9() {
    commands_agree(Flavour::Valkey9);
}

#[test]
fn calls_agree_with_redis_7() {
    calls_agree(Flavour::Redis7);
}

#[test]
fn calls_agree_with_redis_6_2() {
    calls_agree(Flavour::Redis62);
}

#[test]
fn calls_agree_with_valkey_9() {
    calls_agree(Flavour::Valkey9);
}
