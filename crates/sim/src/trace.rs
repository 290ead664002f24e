//! The lines of a run, and their hash.

use std::fmt::Write as _;

use spile_resp::{Value, parse};

use crate::fleet::report::{Report, What};
use crate::oracle::script::{Executed, ExecutedCharge};
use crate::scheduler::Nanos;

/// The lines of a run. Nothing is formatted unless they are wanted.
#[derive(Debug)]
pub struct Trace {
    mode: Mode,
    hash: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    Off,
    Hash,
    Print,
}

impl Trace {
    /// No trace.
    pub const fn off() -> Self {
        Self { mode: Mode::Off, hash: FNV_START }
    }

    /// Only the hash of the lines.
    pub const fn hashed() -> Self {
        Self { mode: Mode::Hash, hash: FNV_START }
    }

    /// Prints the lines as well.
    pub const fn printed() -> Self {
        Self { mode: Mode::Print, hash: FNV_START }
    }

    /// The hash of all lines so far.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Adds a line.
    pub fn line(&mut self, now: Nanos, text: impl FnOnce() -> String) {
        if self.mode == Mode::Off {
            return;
        }
        let line = format!("{:>10}.{:03} {}", now / 1_000_000, now / 1_000 % 1_000, text());
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        if self.mode == Mode::Print {
            println!("{line}");
        }
    }

    pub(crate) fn report(&mut self, report: &Report) {
        self.line(report.at, || {
            let told = match &report.what {
                What::Asks { charges, .. } => {
                    let charges = charges
                        .iter()
                        .map(|owed| format!("{}:{} {}", owed.bucket.key, owed.bucket.name, owed.cost));
                    format!("asks {}", charges.collect::<Vec<_>>().join(", "))
                }
                What::Decided { decision, waited, .. } => {
                    format!("{}{}", decided(decision), if *waited { ", after waiting as told" } else { "" })
                }
                What::Granted { granted, decision } => format!("granted {granted}, {}", decided(decision)),
                What::Charged(result) => format!("charged {result:?}"),
                What::Refunds { spent, name, .. } => format!("refunds q{spent}, named {name:?}"),
                What::Refunded(result) => format!("refunded {result:?}"),
                What::Reset(result) => format!("reset {result:?}"),
                What::Reserved { decision, .. } => format!("reserved, {}", decided(decision)),
                What::Settles { reservation, amounts, .. } => {
                    format!("settles q{reservation} at {amounts:?}")
                }
                What::Settled { reservation, result } => format!("settled q{reservation} {result:?}"),
                What::Acquired { decision, permit } => format!("permit {permit:?}, {}", decided(decision)),
                What::Released { permit } => format!("released {permit}"),
                What::Abandoned => "abandoned".to_owned(),
                What::Ended => "ended".to_owned(),
            };
            format!("q{} at i{}: {told}", report.question, report.instance)
        });
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

fn decided(decision: &spile_core::Decision) -> String {
    let mut text = format!(
        "{} by {} ({}), limit {}, wait {:?}",
        if decision.allowed() { "allowed" } else { "denied" },
        decision.source().as_str(),
        decision.reason().as_str(),
        decision.binding().name(),
        decision.retry_after(),
    );
    if let Some(failure) = decision.failure() {
        let _ = write!(text, ", {} (may have run: {})", failure.as_str(), decision.may_have_run());
    }
    text
}

/// A command, with its bytes as they can be read.
pub(crate) fn command(parts: &[&[u8]]) -> String {
    let shown = |part: &&[u8]| {
        if part.len() > 300 { format!("<{} bytes>", part.len()) } else { part.escape_ascii().to_string() }
    };
    parts.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// A reply of a node.
pub(crate) fn reply(bytes: &[u8]) -> String {
    parse(bytes).ok().flatten().map_or_else(|| "?".to_owned(), |(value, _)| shown(&value))
}

fn shown(value: &Value) -> String {
    let list = |items: &[Value]| items.iter().map(shown).collect::<Vec<_>>().join(" ");
    match value {
        Value::Int(number) => number.to_string(),
        Value::Text(text) => text.escape_ascii().to_string(),
        Value::Error(text) => format!("-{text}"),
        Value::Array(items) => format!("[{}]", list(items)),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{}: {}", shown(key), shown(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        Value::Nil => "nil".to_owned(),
    }
}

/// The changes of a script call, question by question.
pub(crate) fn executed(questions: &[Executed]) -> String {
    let charge = |charge: &ExecutedCharge| {
        let ExecutedCharge { bucket, cost, before, after, .. } = charge;
        let name = if bucket.name.is_empty() { String::new() } else { format!(" {}", bucket.name) };
        format!("{}{name} {cost} ({before} -> {after})", bucket.key)
    };
    let question = |question: &Executed| {
        let charges = question.charges.iter().map(charge).collect::<Vec<_>>().join(", ");
        let mut text = format!("{:?} {:?}: {charges}", question.operation, question.verdict);
        if let Some(permit) = &question.permit {
            let _ = write!(text, "; permit {}", permit.escape_ascii());
        }
        if let Some(marker) = question.markers.first() {
            let _ = write!(text, "; marker {}, amounts {:?}", marker.key, question.marker_amounts);
        }
        text
    };
    questions.iter().map(question).collect::<Vec<_>>().join(" | ")
}
