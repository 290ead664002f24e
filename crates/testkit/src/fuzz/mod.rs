//! Feeds a parser bytes that a peer, a disk or an operator could have written: every input of a committed corpus, and
//! variations of them.
//!
//! Works on a stable compiler and as an ordinary test. In place of the compiler's coverage it goes by what the target
//! observes: an input that leads to something new (another reason for a refusal, another number of parts) is varied in
//! its turn. `./test` takes the same steps each time; `bench/fuzz/run` takes others, for as long as its caller asks.

mod variation;

use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use spile_core::{Clock, Micros, SystemClock};

use self::variation::Variation;

/// The seconds that each target is varied for. Without it, each takes [`STEPS`].
const SECONDS: &str = "SPILE_FUZZ_SECONDS";
/// Variations in an ordinary run of the tests.
const STEPS: u64 = 2_000;
/// No input grows beyond this, unless the corpus has it.
const LONGEST: usize = 8 * 1024;
/// Inputs that are kept because they led to something new.
const MOST_KEPT: usize = 4_096;

/// Calls `target` with each input of `bench/fuzz/corpus/{name}` and with variations of them. It panics where a promise
/// is broken, and otherwise returns what it observed, coarse enough that inputs of one kind look alike.
///
/// `words` are pieces of the format that no variation of single bytes would come upon.
///
/// # Panics
/// Where the target does. The input is then kept in the corpus, to be tried first from then on.
pub fn fuzz<T: Hash>(name: &str, words: &[&str], target: impl Fn(&[u8]) -> T) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/fuzz/corpus").join(name);
    let mut pool = read(&folder);
    assert!(!pool.is_empty(), "there is no corpus in {}", folder.display());
    let mut seen = HashSet::new();
    let mut observe = |input: &[u8]| {
        let witness = Witness { folder: &folder, input };
        let observed = target(witness.input);
        seen.insert(hash(&observed))
    };
    for input in &pool {
        observe(input);
    }
    let (corpus, mut run) = (pool.len(), Run::start());
    while run.goes_on() {
        let input = run.variation.of(&pool, words, LONGEST);
        if observe(&input) && pool.len() < MOST_KEPT {
            pool.push(input);
        }
    }
    let found = pool.len() - corpus;
    println!("{name}: {corpus} inputs, {} variations, {found} of them led to something new", run.steps);
}

/// The input as a network could deliver it: in pieces of 1 to 9 bytes, larger ones if it is long, and always the same ones.
pub fn pieces(input: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut pieces, mut variation) = (input, Vec::new(), Variation::new(hash(&input)));
    let most = (input.len() as u64 / 32).max(9);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((1 + variation.below(most) as usize).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn hash(observed: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    observed.hash(&mut hasher);
    hasher.finish()
}

/// The inputs in the order of their names: the same in each run.
fn read(folder: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("a file of the corpus can be read")).collect()
}

/// How long to go on.
struct Run {
    clock: SystemClock,
    started: Micros,
    /// How long to vary, where that was said.
    time: Option<Duration>,
    steps: u64,
    variation: Variation,
}

impl Run {
    fn start() -> Self {
        let seconds = std::env::var(SECONDS).ok().map(|text| text.parse().expect("a number of seconds"));
        let time = seconds.map(Duration::from_secs);
        let clock = SystemClock::new();
        let started = clock.now();
        let seed = time.map_or(1, |_| clock.wall().get());
        Self { clock, started, time, steps: 0, variation: Variation::new(seed) }
    }

    fn goes_on(&mut self) -> bool {
        self.steps += 1;
        match self.time {
            None => self.steps <= STEPS,
            Some(time) => self.clock.now().since_us(self.started) < time.as_micros() as u64,
        }
    }
}

/// Keeps the input that a target panics on.
struct Witness<'i> {
    folder: &'i Path,
    input: &'i [u8],
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let file = self.folder.join(format!("found-{:016x}", hash(&self.input)));
            let beginning = &self.input[..self.input.len().min(300)];
            eprintln!("the input is kept in {}: {}", file.display(), beginning.escape_ascii());
            if let Err(why) = fs::write(&file, self.input) {
                eprintln!("it could not be kept: {why}");
            }
        }
    }
}
