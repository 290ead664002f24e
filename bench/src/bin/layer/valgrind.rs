//! Instructions and allocations per request, as Valgrind counts them: the same on every run, however busy the
//! machine.

use std::process::Command;

/// Requests in the shorter and the longer run. What starting up takes is in both, and falls out.
const SHORT: u32 = 2_000;
const LONG: u32 = 4_000;

/// What one request takes.
pub(crate) struct Counts {
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
}

pub(crate) fn counts(name: &str) -> Counts {
    let callgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*counted*"];
    let memcheck = ["--tool=memcheck", "--leak-check=no"];
    Counts {
        instructions: per_request(name, &callgrind, "Collected :"),
        allocations: per_request(name, &memcheck, "total heap usage:"),
    }
}

fn per_request(name: &str, tool: &[&str], label: &str) -> f64 {
    let [short, long] = [SHORT, LONG].map(|requests| run(name, tool, label, requests));
    (long - short) / f64::from(LONG - SHORT)
}

/// The number that Valgrind prints behind `label`, or not a number where it is not installed.
fn run(name: &str, tool: &[&str], label: &str, requests: u32) -> f64 {
    let program = std::env::current_exe().expect("a program knows where it is");
    let output = Command::new("valgrind")
        .args(tool)
        .arg(program)
        .args(["count", name, &requests.to_string()])
        .output();
    let Ok(output) = output else { return f64::NAN };
    let printed = String::from_utf8_lossy(&output.stderr);
    let line = printed.lines().find_map(|line| line.split_once(label));
    let number = line.and_then(|(_, rest)| rest.split_whitespace().next());
    number.and_then(|number| number.replace(',', "").parse().ok()).unwrap_or(f64::NAN)
}
