//! What saving a million buckets costs, and whom: CPU time of a save and of a restore, and how long decisions take while
//! one save follows the other, beside how long they take without.
//!
//! `cargo run --profile dist -p spile-bench --bin snapshot`. The deciding and the saving thread compete for the shards' locks;
//! the tail of the waits shows how long one is held.

use std::fs::File;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::time::{ClockId, clock_gettime};
use spile_bench::{Table, median};
use spile_core::{Cost, Key, Limit, LimitName, NamedLimit};
use spile_memory::{MemoryStore, SnapshotFile};

const BUCKETS: usize = 1_000_000;
const DECISIONS: usize = 2_000_000;
const ROUNDS: usize = 7;

fn main() {
    let folder = std::env::temp_dir().join(format!("spile-snapshot-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder of our own");
    let mut file = SnapshotFile::open(folder.join("buckets")).expect("nobody else has it");
    let (store, keys, limit) = filled();
    let mut saves = Vec::new();
    for key in keys.iter().take(ROUNDS) {
        // A save without a change would not touch the disk.
        spend(&store, key, &limit);
        saves.push(cpu_of(|| file.save(&store).map(|_| ()).expect("the folder is ours")));
    }
    let restores = (0..ROUNDS).map(|_| cpu_of(|| drop(file.restore(MemoryStore::builder()).expect("whole"))));
    let restores = restores.collect();
    let bytes = File::open(file.path()).and_then(|file| file.metadata()).expect("it was saved").len();
    println!(
        "{BUCKETS} buckets are {bytes} bytes; CPU time: {:.0} ms to save, {:.0} ms to restore\n",
        median(saves),
        median(restores)
    );

    let calm = waits(&store, &keys, &limit);
    let ended = AtomicBool::new(false);
    let busy = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                store.save(std::io::sink()).expect("a sink takes everything");
            }
        });
        let busy = waits(&store, &keys, &limit);
        ended.store(true, Ordering::Relaxed);
        busy
    });
    let mut table =
        Table::new(&["a decision takes", "p50, ns", "p99, ns", "p99.9, ns", "p99.99, ns", "longest, us"]);
    for (name, waits) in [("without saves", calm), ("while one save follows the other", busy)] {
        let at = |share: f64| format!("{:.0}", waits[(share * (waits.len() - 1) as f64) as usize]);
        let longest = format!("{:.0}", waits[waits.len() - 1] / 1e3);
        table.row([name.to_owned(), at(0.5), at(0.99), at(0.999), at(0.9999), longest]);
    }
    println!("{table}");
    std::fs::remove_dir_all(folder).expect("the folder is ours");
}

fn filled() -> (MemoryStore, Vec<String>, NamedLimit) {
    let limit = Limit::per_day(1_000).build().expect("in bounds");
    let limit = NamedLimit::new(LimitName::new("daily").expect("a name"), limit);
    let store = MemoryStore::builder().max_keys(BUCKETS * 5 / 4).build();
    let keys: Vec<String> = (0..BUCKETS).map(|key| format!("user:{:08}", key * 7_919 % BUCKETS)).collect();
    for key in &keys {
        spend(&store, key, &limit);
    }
    (store, keys, limit)
}

fn spend(store: &MemoryStore, key: &str, limit: &NamedLimit) {
    black_box(store.spend_one(Key::new(key).expect("a key"), limit, Cost::ONE));
}

/// Nanoseconds of wall time that each decision took, the shortest first.
fn waits(store: &MemoryStore, keys: &[String], limit: &NamedLimit) -> Vec<f64> {
    let mut waits: Vec<f64> = Vec::with_capacity(DECISIONS);
    for key in keys.iter().cycle().take(DECISIONS) {
        let began = wall_ns();
        spend(store, key, limit);
        waits.push(wall_ns() - began);
    }
    waits.sort_by(f64::total_cmp);
    waits
}

/// Milliseconds that this thread ran for.
fn cpu_of(work: impl FnOnce()) -> f64 {
    let time = || clock_gettime(ClockId::ThreadCPUTime);
    let began = time();
    work();
    let ended = time();
    (ended.tv_sec - began.tv_sec) as f64 * 1e3 + (ended.tv_nsec - began.tv_nsec) as f64 / 1e6
}

fn wall_ns() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
