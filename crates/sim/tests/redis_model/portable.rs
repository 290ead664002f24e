//! Calls of the portable script, on the buckets that the store uses.

use fastrand::Rng;
use spile_core::Micros;
use spile_redis::PORTABLE_SCRIPT;

use crate::pair::Pair;

const HASHES: [&str; 4] = ["spile:{ann}:free", "spile:{ann}:gold", "spile:{bob}:free", "spile:{bob}:gold"];
const NAMES: [&str; 3] = ["", "burst", "slow"];
const NUMBERS: [&str; 8] = ["1000000", "7000000", "1", "60000000", "3600000000", "0", "x", "1e16"];

/// Runs one call, mostly with sound arguments. Returns its keys.
pub(crate) fn run(pair: &mut Pair, random: &mut Rng, now: Micros) -> Vec<Vec<u8>> {
    let first = 2 * random.usize(..2);
    let keys = &HASHES[first..first + 2];
    let mut words = vec!["EVAL".to_owned(), PORTABLE_SCRIPT.to_owned(), keys.len().to_string()];
    words.extend(keys.iter().map(|key| (*key).to_owned()));
    words.push(now.get().to_string());
    for _ in 0..random.usize(1..4) {
        let capacity = random.u64(1..20) * 1_000_000;
        let cost = if random.bool() { 1_000_000 } else { random.u64(0..=capacity) };
        let hash = random.usize(1..=2);
        let name = NAMES[random.usize(..NAMES.len())].to_owned();
        words.extend([hash.to_string(), name, capacity.to_string()]);
        words.extend(["3000000".to_owned(), "7000000".to_owned(), "1000000".to_owned(), cost.to_string()]);
    }
    if random.u32(0..8) == 0 {
        let at = random.usize(5..words.len());
        NUMBERS[random.usize(..NUMBERS.len())].clone_into(&mut words[at]);
    }
    // The time of the server is another than the model's.
    if words[5] == "0" {
        "7".clone_into(&mut words[5]);
    }
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    pair.compare(&words);
    keys.iter().map(|key| key.as_bytes().to_vec()).collect()
}
