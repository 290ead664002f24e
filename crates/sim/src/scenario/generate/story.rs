//! Short stories that lead to one cell of the table: the state of a bucket is prepared, and a question is asked about it.

use super::{
    Action, Draw, Event, Fault, FleetSpec, LimitSpec, MOST, Operation, PlanSpec, Question, RefundTime, TOKEN,
    Tampering,
};

const STATES: [State; 10] = [
    State::Absent,
    State::Full,
    State::Partial,
    State::Empty,
    State::InDebt,
    State::InFuture,
    State::Changed,
    State::Changed,
    State::Changed,
    State::Broken,
];

/// The state in which the question finds its bucket.
#[derive(Clone, Copy)]
enum State {
    Absent,
    Full,
    Partial,
    Empty,
    InDebt,
    InFuture,
    /// Tightened, widened or of another shape.
    Changed,
    Broken,
}

/// A story while it is written.
pub(super) struct Story<'a> {
    draw: &'a mut Draw,
    plan: &'a PlanSpec,
    /// The parts that all its questions have in common.
    question: Question,
    nodes: u8,
    versions: u8,
    at: u64,
}

impl<'a> Story<'a> {
    pub(super) fn new(draw: &'a mut Draw, fleet: &FleetSpec, plans: &'a [PlanSpec], keys: u8) -> Self {
        let mut question = draw.question(fleet, plans, keys);
        // Most are about a plan that changes or has a quota.
        let is_rich = |plan: &PlanSpec| plan.versions.len() > 1 && plan.has_quota();
        if let Some(rich) = plans.iter().position(is_rich).filter(|_| draw.one_in(3)) {
            question.plans.insert(0, rich as u8);
        }
        (question.cancel, question.shadow) = (None, false);
        question.plans.truncate(1);
        if keys > 1 && question.keys.len() == 1 && draw.one_in(2) {
            question.keys.push((question.keys[0] + 1) % keys);
        }
        let plan = &plans[usize::from(question.plans[0])];
        Self { draw, plan, question, nodes: fleet.nodes, versions: plan.versions.len() as u8, at: 0 }
    }

    /// Appends its events. Returns when it ends.
    pub(super) fn write(mut self, at: u64, events: &mut Vec<Event>) -> u64 {
        self.at = at;
        let takes_permits = self.plan.takes_permits();
        if !self.draw.one_in(4) {
            self.ask(events, Operation::Reset, 0);
        }
        // A spend to refund, a reservation to settle, or a permit to release.
        let operation = if takes_permits { self.permit_operation() } else { self.operation() };
        let returns = matches!(operation, Operation::Refund { .. } | Operation::Settle { .. });
        let state = if returns && self.draw.one_in(2) { State::Changed } else { *self.draw.pick(&STATES) };
        let cost = if returns && self.draw.one_in(3) {
            self.capacity().max(MOST)
        } else {
            self.cost(matches!(operation, Operation::Charge))
        };
        match operation {
            Operation::Refund { .. } => self.ask(events, Operation::Allow, cost),
            Operation::Settle { .. } => self.ask(events, Operation::Reserve(60), cost),
            Operation::Release { .. } => self.ask(events, Operation::Acquire, cost),
            _ => {}
        }
        self.prepare(state, takes_permits, returns, events);
        for _ in 0..*self.draw.pick(&[1, 1, 2]) {
            self.ask(events, operation, cost);
        }
        self.at
    }

    fn prepare(&mut self, state: State, takes_permits: bool, returns: bool, events: &mut Vec<Event>) {
        let capacity = self.capacity();
        match state {
            State::Absent => self.ask(events, Operation::Reset, 0),
            _ if takes_permits => {
                let permits = if matches!(state, State::Empty) { 5 } else { 1 };
                (0..permits).for_each(|_| self.ask(events, Operation::Acquire, 1));
            }
            State::Empty | State::Changed | State::InFuture => {
                self.ask(events, Operation::SpendUpTo, capacity);
                self.ask(events, Operation::Charge, capacity % TOKEN);
            }
            State::InDebt => {
                self.ask(events, Operation::SpendUpTo, capacity);
                self.ask(events, Operation::Charge, capacity / 2 + 1);
            }
            State::Full | State::Partial | State::Broken => {
                self.ask(events, Operation::Allow, capacity / 3 + 1);
            }
        }
        match state {
            State::Full => {
                self.ask(events, Operation::Refund { of: 0, once: false, time: RefundTime::Known }, 0);
                self.at += *self.draw.pick(&[0, 300_000, 3_000_000]);
            }
            State::Changed if self.versions > 1 => {
                let plan = self.question.plans[0];
                let version = self.draw.rng.u8(..self.versions);
                self.push(events, Action::Change { plan, version, instance: None });
                if returns && self.draw.one_in(2) {
                    self.ask(events, Operation::Allow, TOKEN);
                }
            }
            State::InFuture if self.draw.has_faults => {
                let step = *self.draw.pick(&[-500, -5_000, -3_600_000]);
                self.each_node(events, |_| Fault::StepNode(0, step));
            }
            State::Broken if self.draw.has_faults => {
                for nth in 0..6 {
                    let how =
                        *self.draw.pick(&[Tampering::Retype, Tampering::Garble, Tampering::NewerFormat(500)]);
                    self.each_node(events, |_| Fault::Tamper(0, nth, how));
                }
            }
            _ => {}
        }
    }

    fn each_node(&mut self, events: &mut Vec<Event>, fault: impl Fn(u8) -> Fault) {
        for node in 0..self.nodes {
            let fault = match fault(node) {
                Fault::StepNode(_, step) => Fault::StepNode(node, step),
                Fault::Tamper(_, nth, how) => Fault::Tamper(node, nth, how),
                other => other,
            };
            self.push(events, Action::Fault(fault));
        }
    }

    fn operation(&mut self) -> Operation {
        let time = self.draw.refund_time();
        // Few plans have quotas, and what they are given back finds them in many states.
        if self.plan.has_quota() && self.draw.one_in(2) {
            return match self.draw.rng.u8(..8) {
                0 => Operation::Refund { of: 0, once: false, time },
                1..=3 => Operation::Refund { of: 0, once: false, time: self.draw.this_window() },
                _ => Operation::Settle { of: 0, percent: *self.draw.pick(&[100, 400]) },
            };
        }
        match self.draw.rng.u8(..16) {
            0 => Operation::Allow,
            1 => Operation::Peek,
            2 => Operation::SpendUpTo,
            3 | 4 => Operation::Charge,
            5 | 6 => Operation::Refund { of: 0, once: true, time },
            7..=10 => Operation::Refund { of: 0, once: false, time },
            11 => Operation::Reset,
            12 => Operation::Reserve(*self.draw.pick(&[1, 60])),
            _ => Operation::Settle { of: 0, percent: *self.draw.pick(&[0, 50, 100, 100, 100, 400, 400]) },
        }
    }

    fn permit_operation(&mut self) -> Operation {
        match self.draw.rng.u8(..6) {
            0 | 1 => Operation::Acquire,
            2 => Operation::Peek,
            3 => Operation::Charge,
            4 => Operation::Reset,
            _ => Operation::Release { of: 0, waits: true },
        }
    }

    /// Nothing, a fraction, some, all, or more.
    fn cost(&mut self, may_exceed: bool) -> i64 {
        let capacity = self.capacity();
        match self.draw.rng.u8(..if may_exceed { 7 } else { 6 }) {
            0 => 0,
            1 => capacity.min(TOKEN) / 2,
            2 => (capacity / 3 / TOKEN * TOKEN).max(1),
            3..=5 if may_exceed => capacity,
            // Callers ask for no more than the capacity that is in force.
            3..=5 => capacity.max(MOST),
            _ => capacity + TOKEN,
        }
    }

    fn capacity(&self) -> i64 {
        let limits = self.plan.versions[0].iter();
        let amounts = limits.filter(|limit| !matches!(limit, LimitSpec::Concurrency { .. }));
        amounts.map(LimitSpec::capacity).min().unwrap_or(TOKEN)
    }

    fn ask(&mut self, events: &mut Vec<Event>, operation: Operation, cost: i64) {
        let question = Question { operation, cost, ..self.question.clone() };
        self.push(events, Action::Ask(question));
        // Most are answered before the next one.
        self.at += if self.draw.one_in(4) { 0 } else { 1_500 };
    }

    fn push(&mut self, events: &mut Vec<Event>, action: Action) {
        events.push(Event { at: self.at, action });
    }
}
