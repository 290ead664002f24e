//! Makes a failing run small: fewer events, instances, keys and versions, as long as the same promise is broken.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::time::Duration;

use crate::coverage::Coverage;
use crate::fleet::{Servers, run};
use crate::oracle::Broken;
use crate::scenario::{Action, Event, Fault, LimitSpec, Question, Scenario};
use crate::trace::Trace;

/// True if the scenario breaks a promise of this oracle.
fn breaks(scenario: &Scenario, oracle: &str, servers: &mut Servers) -> bool {
    run(scenario, servers, Trace::off(), &mut Coverage::default())
        .0
        .broken
        .is_some_and(|broken| broken.oracle == oracle)
}

/// A smaller scenario that breaks the same promise, and how it does. Stops when `has_time` says so.
pub fn reduce(
    scenario: &Scenario,
    found: &Broken,
    servers: &mut Servers,
    has_time: impl Fn() -> bool,
) -> Scenario {
    let mut reducer = Reducer { best: scenario.clone(), oracle: found.oracle, servers, has_time: &has_time };
    loop {
        let before = reducer.best.clone();
        reducer.remove_events();
        reducer.simplify();
        if reducer.best == before || !has_time() {
            return reducer.best;
        }
    }
}

/// How many seeds a smaller scenario is tried with.
const TRIES: u64 = 4;

struct Reducer<'a> {
    best: Scenario,
    oracle: &'static str,
    servers: &'a mut Servers,
    has_time: &'a dyn Fn() -> bool,
}

impl Reducer<'_> {
    fn keep(&mut self, candidate: &Scenario) -> bool {
        let differs = *candidate != self.best;
        // With an event less, everything after it happens at other moments: some of them may still break the promise.
        let seeds = (0..TRIES).map(|nth| candidate.seed.wrapping_add(nth));
        let fails = differs.then_some(seeds).into_iter().flatten().find_map(|seed| {
            let candidate = Scenario { seed, ..candidate.clone() };
            let fails = (self.has_time)() && breaks(&candidate, self.oracle, self.servers);
            fails.then_some(candidate)
        });
        let is_kept = fails.is_some();
        if let Some(smaller) = fails {
            self.best = smaller;
        }
        is_kept
    }

    /// Removes runs of events, long ones first.
    fn remove_events(&mut self) {
        let mut length = self.best.events.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < self.best.events.len() {
                let mut candidate = self.best.clone();
                let to = (from + length).min(candidate.events.len());
                candidate.events.drain(from..to);
                if !self.keep(&candidate) {
                    from = to;
                }
            }
            if length == 1 {
                return;
            }
            length = length.div_ceil(2);
        }
    }

    fn simplify(&mut self) {
        let simpler: [fn(&mut Scenario); 7] = [
            |scenario| scenario.fleet.node_drift_ppm = 0,
            |scenario| scenario.fleet.instances = 1,
            |scenario| scenario.fleet.nodes = 1,
            |scenario| scenario.fleet.connections = 1,
            |scenario| scenario.fleet.drift_ppm = 0,
            |scenario| scenario.fleet.deny_cache_ms = 0,
            |scenario| scenario.plans.iter_mut().for_each(|plan| plan.versions.truncate(1)),
        ];
        for simplify in simpler {
            let mut candidate = self.best.clone();
            simplify(&mut candidate);
            within(&mut candidate);
            self.keep(&candidate);
        }
        for at in 0..self.best.events.len() {
            let simpler: [fn(&mut Question); 6] = [
                |question| question.cost = 1_000_000,
                |question| question.cancel = None,
                |question| question.shadow = false,
                |question| question.keys.truncate(1),
                |question| question.plans.truncate(1),
                |question| question.instance = 0,
            ];
            for simplify in simpler {
                let mut candidate = self.best.clone();
                if let Some(Action::Ask(question)) =
                    candidate.events.get_mut(at).map(|event| &mut event.action)
                {
                    simplify(question);
                    self.keep(&candidate);
                }
            }
        }
        for plan in (0..self.best.plans.len()).rev() {
            if let Some(candidate) = without_plan(&self.best, plan as u8) {
                self.keep(&candidate);
            }
        }
        self.simplify_limits();
    }

    fn simplify_limits(&mut self) {
        for (plan, at) in (0..self.best.plans.len()).flat_map(|plan| (0..4).rev().map(move |at| (plan, at))) {
            let mut candidate = self.best.clone();
            for limits in &mut candidate.plans[plan].versions {
                if limits.len() > 1 && at < limits.len() {
                    limits.remove(at);
                }
            }
            self.keep(&candidate);
            let simpler: [fn(&mut LimitSpec); 3] = [
                |limit| {
                    if let LimitSpec::Rate { money, .. } = limit {
                        *money = false;
                    }
                },
                |limit| {
                    if let LimitSpec::Rate { debt, .. } | LimitSpec::Quota { debt, .. } = limit {
                        *debt = 0;
                    }
                },
                |limit| {
                    if let LimitSpec::Rate { lease_ms, .. } = limit {
                        *lease_ms = 0;
                    }
                },
            ];
            for simplify in simpler {
                let mut candidate = self.best.clone();
                candidate.plans[plan]
                    .versions
                    .iter_mut()
                    .filter_map(|limits| limits.get_mut(at))
                    .for_each(simplify);
                self.keep(&candidate);
            }
        }
    }
}

/// The scenario without a plan, unless a question or a change names it. The plans after it move up.
fn without_plan(scenario: &Scenario, plan: u8) -> Option<Scenario> {
    let mut candidate = scenario.clone();
    candidate.plans.remove(usize::from(plan));
    for event in &mut candidate.events {
        let numbers = match &mut event.action {
            Action::Ask(question) => question.plans.as_mut_slice(),
            Action::Change { plan, .. } => std::slice::from_mut(plan),
            Action::Fault(_) => &mut [],
        };
        for number in numbers {
            match (*number).cmp(&plan) {
                Ordering::Equal => return None,
                Ordering::Greater => *number -= 1,
                Ordering::Less => {}
            }
        }
    }
    (!candidate.plans.is_empty()).then_some(candidate)
}

/// Moves what names a missing instance or node to one that there is.
fn within(scenario: &mut Scenario) {
    let (instances, nodes) = (scenario.fleet.instances, scenario.fleet.nodes);
    for event in &mut scenario.events {
        match &mut event.action {
            Action::Ask(question) => question.instance %= instances,
            Action::Change { instance: Some(instance), .. } => *instance %= instances,
            Action::Change { instance: None, .. } => {}
            Action::Fault(fault) => match fault {
                Fault::Kill(instance, _)
                | Fault::Pause(instance, _)
                | Fault::EndRuntime(instance)
                | Fault::StepInstance(instance, _) => {
                    *instance %= instances;
                }
                Fault::Partition(instance, node, _) | Fault::LoseReplies(instance, node, _) => {
                    *instance %= instances;
                    *node %= nodes;
                }
                Fault::StepNode(node, _)
                | Fault::Cut(node)
                | Fault::Freeze(node, _)
                | Fault::Restart(node, _)
                | Fault::FailOver(node, ..)
                | Fault::FlushScripts(node)
                | Fault::OutOfMemory(node, _)
                | Fault::DenyCommand(node, ..)
                | Fault::ReadOnly(node, _)
                | Fault::Demote(node)
                | Fault::Tamper(node, ..) => *node %= nodes,
                Fault::Slow(..) | Fault::StaleMap(_) => {}
            },
        }
    }
}

/// The scenario as a test to paste into `tests/fleet`.
pub fn as_test(scenario: &Scenario, broken: &Broken) -> String {
    // Only lists are printed in brackets.
    let shown = |value: &dyn std::fmt::Debug| format!("{value:?}").replace('[', "vec![");
    let name = broken.oracle.replace(|letter: char| !letter.is_alphanumeric(), "_");
    let mut text = format!("#[test]\nfn {name}_{}() {{\n    // {broken}\n", scenario.seed);
    let _ = writeln!(text, "    holds(&Scenario {{\n        seed: {},", scenario.seed);
    let _ = writeln!(text, "        fleet: {},", shown(&scenario.fleet));
    let _ = writeln!(text, "        plans: {},\n        events: vec![", shown(&scenario.plans));
    for event in &scenario.events {
        let _ = writeln!(text, "            {},", event_as_code(event, &shown));
    }
    text.push_str("        ],\n    });\n}\n");
    text
}

fn event_as_code(event: &Event, shown: &dyn Fn(&dyn std::fmt::Debug) -> String) -> String {
    let Action::Ask(question) = &event.action else { return shown(event) };
    let Question { instance, operation, keys, plans, cost, cancel, shadow } = question;
    let mut text =
        format!("Event::ask({}, {instance}, {operation:?}, {keys:?}, {plans:?}, {cost})", event.at);
    if let Some(us) = cancel {
        let _ = write!(text, ".cancelled_after({us})");
    }
    if *shadow {
        text.push_str(".in_shadow()");
    }
    text
}

/// A clock for the time that a reduction may take.
#[expect(clippy::disallowed_methods, reason = "the time of the person who waits")]
pub fn time_box(most: Duration) -> impl Fn() -> bool {
    let started = std::time::Instant::now();
    move || started.elapsed() < most
}
