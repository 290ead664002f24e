//! Replays a seed, or runs many.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use parking_lot::Mutex;
use spile_sim::coverage::{Cell, Coverage, Seen};
use spile_sim::fleet::{Servers, run};
use spile_sim::oracle::Broken;
use spile_sim::reduce::{as_test, reduce, time_box};
use spile_sim::scenario::Scenario;
use spile_sim::trace::Trace;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulates a fleet of limiters on a model of Redis.
#[derive(Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
struct Options {
    /// Replays this seed and prints its trace.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Runs these seeds: `FROM..TO`.
    #[arg(long)]
    seeds: Option<String>,
    /// Runs until this many minutes have passed.
    #[arg(long)]
    minutes: Option<f64>,
    /// How many questions a run asks.
    #[arg(long, default_value_t = 600)]
    questions: usize,
    /// How many runs at once.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Prints what was visited.
    #[arg(long)]
    coverage: bool,
    /// Runs all seeds, and lists those that fail by the promise that they break.
    #[arg(long)]
    keep_going: bool,
    /// Does not reduce a failing run.
    #[arg(long)]
    no_reduce: bool,
    /// Prints only the result.
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match (options.seed, &options.seeds) {
        (Some(seed), _) => replay(seed, &options),
        (None, Some(seeds)) => {
            if let Some((from, to)) = range(seeds) {
                run_all(from, to, &options)
            } else {
                eprintln!("--seeds {seeds}: expected FROM..TO, such as 0..1000");
                ExitCode::from(2)
            }
        }
        (None, None) => run_all(0, if options.minutes.is_some() { u64::MAX } else { 1_000 }, &options),
    }
}

fn range(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once("..")?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from < to).then_some((from, to))
}

fn replay(seed: u64, options: &Options) -> ExitCode {
    let mut servers = Servers::default();
    let scenario = Scenario::generate(seed, options.questions);
    println!("{:?}\n{:?}", scenario.fleet, scenario.plans);
    let trace = if options.quiet { Trace::hashed() } else { Trace::printed() };
    let (outcome, _) = run(&scenario, &mut servers, trace, &mut Coverage::default());
    println!(
        "trace {:016x}, {} questions, {} executed",
        outcome.trace_hash, outcome.questions, outcome.executed
    );
    match &outcome.broken {
        Some(broken) => report(&scenario, broken, options, &mut servers),
        None => ExitCode::SUCCESS,
    }
}

fn report(scenario: &Scenario, broken: &Broken, options: &Options, servers: &mut Servers) -> ExitCode {
    println!("\nseed {} breaks a promise: {broken}", scenario.seed);
    if !options.no_reduce {
        let reduced = reduce(scenario, broken, servers, time_box(Duration::from_secs(60)));
        let (outcome, _) = run(&reduced, servers, Trace::printed(), &mut Coverage::default());
        let broken = outcome.broken.as_ref().unwrap_or(broken);
        println!("\n{}", as_test(&reduced, broken));
    }
    ExitCode::FAILURE
}

/// Totals of all threads.
#[derive(Default)]
struct Totals {
    questions: AtomicU64,
    executed: AtomicU64,
    runs: AtomicU64,
}

#[expect(clippy::disallowed_methods, reason = "the time of the person who waits")]
fn run_all(from: u64, to: u64, options: &Options) -> ExitCode {
    let started = Instant::now();
    let most = options.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let (next, totals) = (AtomicU64::new(from), Totals::default());
    let coverage = Mutex::new(Coverage::default());
    let shows_progress = !options.quiet && std::io::stdout().is_terminal();
    let failures: Mutex<Vec<(u64, Broken)>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..options.threads {
            let (next, totals, failures, coverage) = (&next, &totals, &failures, &coverage);
            scope.spawn(move || {
                let (mut servers, mut own) = (Servers::default(), Coverage::default());
                while (options.keep_going || failures.lock().is_empty())
                    && most.is_none_or(|most| started.elapsed() < most)
                {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to {
                        break;
                    }
                    let scenario = Scenario::generate(seed, options.questions);
                    let (outcome, _) = run(&scenario, &mut servers, Trace::off(), &mut own);
                    totals.questions.fetch_add(outcome.questions, Ordering::Relaxed);
                    totals.executed.fetch_add(outcome.executed, Ordering::Relaxed);
                    let runs = totals.runs.fetch_add(1, Ordering::Relaxed) + 1;
                    if let Some(broken) = &outcome.broken {
                        if options.keep_going {
                            eprintln!("seed {seed}: {broken}");
                        }
                        failures.lock().push((seed, broken.clone()));
                    }
                    if thread == 0 && shows_progress {
                        progress(runs, from, to, started.elapsed(), most, totals);
                    }
                }
                coverage.lock().add(&own);
            });
        }
    });
    let (runs, questions) = (totals.runs.into_inner(), totals.questions.into_inner());
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "\r{runs} seeds from {from}, {questions} questions, {} executed, {seconds:.1} s, {:.0} questions/s",
        totals.executed.into_inner(),
        questions as f64 / seconds
    );
    if options.coverage {
        print_coverage(&coverage.into_inner());
    }
    let mut failures = failures.into_inner();
    failures.sort_by_key(|(seed, _)| *seed);
    if options.keep_going {
        list(&failures);
    }
    match failures.first() {
        Some((seed, broken)) => {
            report(&Scenario::generate(*seed, options.questions), broken, options, &mut Servers::default())
        }
        None => ExitCode::SUCCESS,
    }
}

/// Lists the oracles that found something, with the seeds.
fn list(failures: &[(u64, Broken)]) {
    const MOST_SEEDS: usize = 12;
    let mut by_oracle: BTreeMap<&str, Vec<&(u64, Broken)>> = BTreeMap::new();
    for failure in failures {
        by_oracle.entry(failure.1.oracle).or_default().push(failure);
    }
    for (oracle, found) in by_oracle {
        let seeds = found.iter().take(MOST_SEEDS).map(|(seed, _)| seed.to_string()).collect::<Vec<_>>();
        println!("{} x {oracle}: {}\n    {}", found.len(), seeds.join(" "), found[0].1.what);
    }
}

fn progress(runs: u64, from: u64, to: u64, elapsed: Duration, most: Option<Duration>, totals: &Totals) {
    const WIDTH: usize = 30;
    let share = match most {
        Some(most) => elapsed.as_secs_f64() / most.as_secs_f64(),
        None => runs as f64 / (to - from) as f64,
    };
    let full = ((share * WIDTH as f64) as usize).min(WIDTH);
    let questions = totals.questions.load(Ordering::Relaxed);
    print!("\r[{}{}] {runs} seeds, {questions} questions ", "#".repeat(full), ".".repeat(WIDTH - full));
    let _shown = std::io::stdout().flush();
}

/// Prints the combinations that were visited less often than a published run promises.
fn print_coverage(coverage: &Coverage) {
    const LEAST_ANSWERS: u64 = 1_000;
    const LEAST_VISITS: u64 = 100;
    let (reached, below) = coverage.answers_below(LEAST_ANSWERS);
    println!("{reached} combinations of operation, shape, source and fault: at least {LEAST_ANSWERS} each");
    for (Seen { operation, shape, source, fault }, count) in below {
        println!("  {operation:<18} {shape:<12} {source:<11} {fault:<14} {count:>10}");
    }
    let (reached, below) = coverage.cells_below(LEAST_VISITS);
    println!("{reached} cells of operation, shape, cost, state and keys: at least {LEAST_VISITS} each");
    for (Cell { operation, shape, cost, state, keys }, count) in below {
        println!("  {operation:<18} {shape:<12} {cost:<9} {state:<12} {keys:<7} {count:>10}");
    }
}
