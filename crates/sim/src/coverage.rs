//! The combinations and cells that runs have visited, and those that they have to visit.

use std::collections::BTreeMap;

/// A cell of the table of combinations, as the script decides it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Cell {
    /// The operation of the script.
    pub operation: &'static str,
    /// The shape of the limit.
    pub shape: &'static str,
    /// The cost, compared with the capacity.
    pub cost: &'static str,
    /// The bucket before.
    pub state: &'static str,
    /// The buckets that the question is about.
    pub keys: &'static str,
}

/// An answer as the caller sees it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Seen {
    /// The operation of the limiter.
    pub operation: &'static str,
    /// The shape of a limit of the question.
    pub shape: &'static str,
    /// Who decided.
    pub source: &'static str,
    /// The last fault, if it was lately.
    pub fault: &'static str,
}

/// How often each combination was visited.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Answers of the limiter.
    pub answers: BTreeMap<Seen, u64>,
    /// Decisions of the script.
    pub cells: BTreeMap<Cell, u64>,
}

const OPERATIONS: [&str; 15] = [
    "spend",
    "peek",
    "spend up to",
    "charge",
    "refund",
    "refund this window",
    "refund spent at",
    "refund once",
    "reset",
    "reserve",
    "settle",
    "acquire",
    "retake",
    "renew",
    "release",
];
const QUESTIONS: [&str; 15] = [
    "allow",
    "allow_as_told",
    "until_ready",
    "peek",
    "spend_up_to",
    "charge",
    "refund",
    "refund_untimed",
    "refund_this_window",
    "refund_once",
    "reset",
    "reserve",
    "settle",
    "acquire",
    "acquire_when_ready",
];
const SOURCES: [&str; 6] = ["store", "deny_cache", "lease", "local", "policy", "failed"];
const FAULTS: [&str; 20] = [
    "none",
    "kill",
    "pause",
    "step_instance",
    "step_node",
    "slow",
    "partition",
    "lose_replies",
    "cut",
    "freeze",
    "restart",
    "fail_over",
    "flush_scripts",
    "out_of_memory",
    "deny_command",
    "read_only",
    "tamper",
    "demote",
    "stale_map",
    "end_runtime",
];
const SHAPES: [&str; 3] = ["rate", "quota", "concurrency"];
const COSTS: [&str; 5] = ["zero", "fraction", "below", "equal", "above"];
const STATES: [&str; 10] = [
    "absent",
    "full",
    "partial",
    "empty",
    "in debt",
    "in future",
    "tightened",
    "widened",
    "other shape",
    "broken",
];
const KEYS: [&str; 3] = ["one", "two", "beside"];

impl Cell {
    /// All cells.
    pub fn all() -> impl Iterator<Item = Self> {
        OPERATIONS.into_iter().flat_map(|operation| {
            SHAPES.into_iter().flat_map(move |shape| {
                COSTS.into_iter().flat_map(move |cost| {
                    STATES.into_iter().flat_map(move |state| {
                        KEYS.into_iter().map(move |keys| Self { operation, shape, cost, state, keys })
                    })
                })
            })
        })
    }

    /// Why the limiter cannot ask for it. `None` if it can.
    pub fn refusal(self) -> Option<&'static str> {
        let is_permit = matches!(self.operation, "acquire" | "retake" | "renew" | "release");
        let takes_permits = self.shape == "concurrency";
        match self {
            _ if is_permit && !takes_permits => Some("the cell is about the places of the permit"),
            Self { state: "in debt", .. } if takes_permits => Some("a concurrency has no debt"),
            Self { operation: "peek" | "charge" | "reset", .. } if takes_permits && self.cost == "zero" => {
                None
            }
            _ if takes_permits && !is_permit => Some("the limiter takes permits by `acquire`"),
            _ if takes_permits && self.cost != "zero" => Some("a concurrency takes one permit at any cost"),
            Self { cost: "zero", .. } if self.operation.starts_with("refund") => {
                Some("a decision that charged nothing cannot be refunded")
            }
            Self { cost: "zero", operation: "spend up to", .. } => Some("the limiter peeks instead"),
            Self { operation: "refund this window" | "refund spent at", shape: "rate", .. } => {
                Some("a rate has no windows: the cell of `refund`")
            }
            Self { operation: "reset", cost, .. } if cost != "zero" => Some("a reset has no cost"),
            Self { cost: "above", operation, .. } if !matches!(operation, "charge" | "settle") => {
                Some("`Charge::new` refuses a cost above the capacity")
            }
            _ => None,
        }
    }
}

impl Seen {
    /// All combinations.
    pub fn all() -> impl Iterator<Item = Self> {
        QUESTIONS.into_iter().flat_map(|operation| {
            SHAPES.into_iter().flat_map(move |shape| {
                SOURCES.into_iter().flat_map(move |source| {
                    FAULTS.into_iter().map(move |fault| Self { operation, shape, source, fault })
                })
            })
        })
    }

    /// Why no caller can see it. `None` if one can.
    pub fn refusal(self) -> Option<&'static str> {
        let Self { operation, shape, source, fault } = self;
        let takes_permits = matches!(operation, "acquire" | "acquire_when_ready");
        let is_decided =
            !matches!(operation, "charge" | "reset" | "settle") && !operation.starts_with("refund");
        let is_cached = is_decided && !matches!(operation, "peek" | "spend_up_to");
        match (shape, source) {
            ("concurrency", _) if !takes_permits && !matches!(operation, "peek" | "charge" | "reset") => {
                Some("permits are taken by `acquire`")
            }
            (_, "deny_cache" | "lease") if !is_cached => Some("it always asks the store"),
            ("quota" | "concurrency", "lease") => Some("only a rate has leases"),
            (_, "lease") if operation == "reserve" => Some("a reservation is made in the store"),
            (_, "lease") if takes_permits => Some("places are taken in the store"),
            (_, "local" | "policy") if !is_decided => Some("it fails, or is done by the store"),
            (_, "failed") if is_decided => Some("a failure policy decides"),
            (_, "local" | "policy" | "failed") if fault == "none" => Some("nothing fails without a fault"),
            _ => None,
        }
    }
}

impl Coverage {
    /// Counts a decision of the script.
    pub(crate) fn visit(&mut self, cell: Cell) {
        *self.cells.entry(cell).or_default() += 1;
    }

    /// Counts an answer of the limiter.
    pub(crate) fn see(&mut self, seen: Seen) {
        *self.answers.entry(seen).or_default() += 1;
    }

    /// How many combinations were seen by callers at least this often, and those that were not.
    pub fn answers_below(&self, least: u64) -> (usize, Vec<(Seen, u64)>) {
        below(Seen::all().filter(|seen| seen.refusal().is_none()), &self.answers, least)
    }

    /// How many cells were visited at least this often, and those that were not.
    pub fn cells_below(&self, least: u64) -> (usize, Vec<(Cell, u64)>) {
        below(Cell::all().filter(|cell| cell.refusal().is_none()), &self.cells, least)
    }

    /// Adds what other runs have visited.
    pub fn add(&mut self, other: &Self) {
        for (seen, count) in &other.answers {
            *self.answers.entry(*seen).or_default() += count;
        }
        for (cell, count) in &other.cells {
            *self.cells.entry(*cell).or_default() += count;
        }
    }
}

fn below<T: Copy + Ord>(
    expected: impl Iterator<Item = T>,
    visits: &BTreeMap<T, u64>,
    least: u64,
) -> (usize, Vec<(T, u64)>) {
    let counted = expected.map(|combination| (combination, visits.get(&combination).copied().unwrap_or(0)));
    let (below, reached): (Vec<_>, Vec<_>) = counted.partition(|(_, count)| *count < least);
    (reached.len(), below)
}
