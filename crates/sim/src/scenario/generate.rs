//! Draws a scenario from a seed.

use super::{
    Action, CLOCK_STEP_US, Event, Fault, FleetSpec, LimitSpec, Operation, PlanSpec, Policy, Question,
    RefundTime, Scenario, Tampering, WindowSpec,
};
use story::Story;

mod story;

const TOKEN: i64 = 1_000_000;
/// The largest capacity of all limits.
const MOST: i64 = 3_000 * TOKEN;
/// A Thursday in 2026, in seconds since the epoch: the midnight after it is that of a day and an hour.
const MIDNIGHT: u64 = 1_782_432_000;

/// The run of a seed.
pub(super) fn scenario(seed: u64, questions: usize) -> Scenario {
    let mut draw = Draw {
        rng: fastrand::Rng::with_seed(seed),
        has_faults: false,
        has_permits: false,
        refunds_this_window: false,
        style: Style::Mixed,
    };
    draw.has_faults = draw.rng.u8(..4) > 0;
    draw.refunds_this_window = draw.rng.bool();
    draw.style = *draw.pick(&[
        Style::Mixed,
        Style::Mixed,
        Style::Leases,
        Style::Leases,
        Style::Permits,
        Style::Reservations,
        Style::Quotas,
    ]);
    let fleet = draw.fleet();
    let plans: Vec<PlanSpec> = (0..draw.rng.usize(2..=6)).map(|_| draw.plan()).collect();
    draw.has_permits = plans.iter().any(PlanSpec::takes_permits);
    let events = draw.events(&fleet, &plans, questions);
    Scenario { seed, fleet, plans, events }
}

/// The subject of most of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Style {
    Mixed,
    Leases,
    Permits,
    Reservations,
    Quotas,
}

struct Draw {
    rng: fastrand::Rng,
    has_faults: bool,
    has_permits: bool,
    refunds_this_window: bool,
    style: Style,
}

impl Draw {
    fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.rng.usize(..among.len())]
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.rng.u32(..count) == 0
    }

    fn fleet(&mut self) -> FleetSpec {
        let nodes = if self.rng.u8(..3) == 0 { self.rng.u8(2..=3) } else { 1 };
        // Most quotas end during the run.
        let starts = MIDNIGHT - self.rng.u64(1..60);
        FleetSpec {
            instances: self.rng.u8(1..=3),
            nodes,
            starts: if self.one_in(4) { starts + 86_400 * self.rng.u64(..120) } else { starts },
            policy: *self.pick(&[Policy::FailOpen, Policy::FailClosed, Policy::Local]),
            deny_cache_ms: *self.pick(&[0, 20, 100, 100]),
            lease_percent: *self.pick(&[10, 10, 30, 50]),
            timeout_ms: *self.pick(&[20, 50, 50, 100]),
            connections: self.rng.u8(1..=2),
            drift_ppm: if self.has_faults { *self.pick(&[0, 50, -200]) } else { 0 },
            node_drift_ppm: if self.has_faults { *self.pick(&[0, 0, 100, -300]) } else { 0 },
        }
    }

    fn plan(&mut self) -> PlanSpec {
        let count = *self.pick(if self.style == Style::Permits { &[1, 2, 2, 3] } else { &[1, 1, 1, 2, 3] });
        let first: Vec<LimitSpec> = (0..count).map(|_| self.limit()).collect();
        let mut versions = vec![first.clone()];
        for _ in 0..self.rng.usize(..3) {
            let changed = first.iter().map(|limit| self.changed(limit)).collect();
            versions.push(changed);
        }
        PlanSpec { versions }
    }

    fn limit(&mut self) -> LimitSpec {
        let shape = match self.style {
            Style::Leases => *self.pick(&[0, 0, 0, 0, 0, 0, 1, 2]),
            Style::Permits => *self.pick(&[0, 1, 1, 2, 2, 2]),
            Style::Reservations => *self.pick(&[0, 0, 1]),
            Style::Quotas => *self.pick(&[0, 1, 1]),
            Style::Mixed => *self.pick(&[0, 0, 0, 1, 2]),
        };
        match shape {
            0 => self.rate(),
            1 => self.quota(),
            _ => LimitSpec::Concurrency {
                permits: if self.style == Style::Leases { 200 } else { self.rng.u64(1..=4) },
                hold_ms: *self.pick(&[1_000, 1_000, 2_000, 5_000]),
            },
        }
    }

    fn rate(&mut self) -> LimitSpec {
        let capacity = match self.rng.u8(..4) {
            // Enough to lend.
            _ if self.style == Style::Leases => self.rng.i64(50..=3_000) * TOKEN,
            0 => self.rng.i64(1..=5) * TOKEN,
            1 => self.rng.i64(5..=200) * TOKEN,
            2 => self.rng.i64(1..=3_000) * TOKEN,
            _ => self.rng.i64(TOKEN..=20 * TOKEN),
        };
        let refill = *self.pick(&[1, 3, 10, 100, 1_000]) * TOKEN / if self.one_in(4) { 7 } else { 1 };
        let is_leased = self.style == Style::Leases || self.one_in(5);
        LimitSpec::Rate {
            capacity,
            refill,
            period_ms: *self.pick(&[1_000, 1_000, 1_000, 60_000, 3_600_000]),
            debt: *self.pick(&[capacity, capacity, 0, 3 * capacity]),
            lease_ms: if is_leased { *self.pick(&[20, 100, 100, 500]) } else { 0 },
            money: self.one_in(8),
        }
    }

    fn quota(&mut self) -> LimitSpec {
        let capacity = self.rng.i64(1..=60) * TOKEN;
        LimitSpec::Quota {
            capacity,
            window: *self.pick(&[
                WindowSpec::Minute,
                WindowSpec::Hour,
                WindowSpec::Day,
                WindowSpec::DayInNewYork,
            ]),
            debt: *self.pick(&[capacity, 0]),
        }
    }

    /// Tighter, wider, or of another shape.
    fn changed(&mut self, limit: &LimitSpec) -> LimitSpec {
        match *limit {
            _ if self.one_in(4) => self.limit(),
            LimitSpec::Rate { capacity, refill, period_ms, debt, lease_ms, money } => LimitSpec::Rate {
                capacity: (capacity / *self.pick(&[1, 2, 10])).max(TOKEN),
                // The slowest one takes two years to fill.
                refill: (refill / *self.pick(&[1, 1, 3, 100])).max(capacity / 20_000),
                period_ms: *self.pick(&[period_ms, 1_000, 3_600_000]),
                debt,
                lease_ms: *self.pick(&[lease_ms, lease_ms, 0]),
                money,
            },
            LimitSpec::Quota { capacity, window, debt } => LimitSpec::Quota {
                capacity: (capacity / *self.pick(&[1, 2, 5])).max(TOKEN),
                window: *self.pick(&[window, window, WindowSpec::Minute]),
                debt,
            },
            LimitSpec::Concurrency { permits, hold_ms } => LimitSpec::Concurrency {
                permits: *self.pick(&[1, permits + 1]),
                hold_ms: *self.pick(&[hold_ms, 1_000]),
            },
        }
    }

    fn events(&mut self, fleet: &FleetSpec, plans: &[PlanSpec], questions: usize) -> Vec<Event> {
        let mut events = Vec::with_capacity(questions + 32);
        let keys = *self.pick(if self.style == Style::Leases { &[1, 2] } else { &[1, 2, 3, 5] });
        let mut at = 2_000;
        // Bursts, and pauses between them.
        while events.len() < questions {
            let is_burst = if self.style == Style::Leases { self.rng.bool() } else { self.one_in(4) };
            at = if is_burst {
                self.burst(fleet, plans, keys, at, questions, &mut events)
            } else {
                Story::new(self, fleet, plans, keys).write(at, &mut events)
            };
            at += *self.pick(&[100, 5_000, 100_000, 100_000, 1_000_000, 3_000_000]);
            if self.one_in(6) && plans.iter().any(|plan| plan.versions.len() > 1) {
                events.push(Event { at: at - 50, action: self.change(fleet, plans) });
            }
            if self.has_faults && self.style != Style::Leases && self.one_in(16) {
                at = self.outage(fleet, plans, keys, at, &mut events);
            }
            if self.has_faults && self.one_in(4) {
                events.push(Event { at: at - 100, action: Action::Fault(self.fault(fleet)) });
                // Some fail twice.
                if self.one_in(3) {
                    let later = at + self.rng.u64(..2_000_000);
                    events.push(Event { at: later, action: Action::Fault(self.fault(fleet)) });
                }
            }
        }
        if self.style == Style::Quotas {
            self.ask_at_midnight(fleet, plans, keys, &mut events);
        }
        if fleet.deny_cache_ms > 0 {
            self.ask_after_denials(fleet, plans, at + 3_000_000, &mut events);
        }
        events.sort_by_key(|event| event.at);
        events
    }

    /// Asks after a denial was remembered and a smaller cost was allowed, or the clock of the store stepped back: what the cache knew of
    /// the bucket is then out of date.
    fn ask_after_denials(
        &mut self,
        fleet: &FleetSpec,
        plans: &[PlanSpec],
        mut at: u64,
        events: &mut Vec<Event>,
    ) {
        // The refill in a millisecond of a plan with one rate that is not leased.
        let refill = |plan: &PlanSpec| match plan.versions[0].as_slice() {
            [LimitSpec::Rate { capacity, refill, period_ms, lease_ms: 0, .. }] => {
                Some(refill / period_ms.cast_signed())
                    .filter(|refill| *refill >= 10 && 100 * refill <= *capacity)
            }
            _ => None,
        };
        let Some((plan, refill)) = plans.iter().zip(0_u8..).find_map(|(plan, at)| Some((at, refill(plan)?)))
        else {
            return;
        };
        events.push(Event { at, action: Action::Change { plan, version: 0, instance: None } });
        for round in 0..6 {
            at += 2_000_000;
            let instance = self.rng.u8(..fleet.instances);
            let steps_back = self.has_faults && round == 5;
            let mut ask = |ms: u64, operation, cost| {
                events.push(Event::ask(at + ms * 1_000, instance, operation, [0], [plan], cost));
            };
            ask(0, Operation::SpendUpTo, MOST);
            ask(2, Operation::Allow, 60 * refill);
            if steps_back {
                (0..60).for_each(|nth| ask(8 + 12 * nth, Operation::AllowAsTold(1), 90 * refill));
                let step =
                    |node| Event { at: at + 6_000, action: Action::Fault(Fault::StepNode(node, -5_000)) };
                events.extend((0..fleet.nodes).map(step));
                continue;
            }
            ask(14, Operation::Allow, 8 * refill);
            ask(18, Operation::AllowAsTold(1), 60 * refill);
        }
    }

    /// Asks while the windows of a node end, so that a chain is decided in one window and undone in the next.
    fn ask_at_midnight(&mut self, fleet: &FleetSpec, plans: &[PlanSpec], keys: u8, events: &mut Vec<Event>) {
        let midnight = (86_400 - fleet.starts % 86_400) * 1_000_000;
        let mut question = self.question(fleet, plans, keys);
        question.keys = (0..keys.min(2)).collect();
        for node in 0..u64::from(fleet.nodes) {
            let Some(ends) = midnight.checked_sub(node * CLOCK_STEP_US + 5_000) else { continue };
            for _ in 0..20 {
                let instance = self.rng.u8(..fleet.instances);
                let action = Action::Ask(Question { instance, ..question.clone() });
                events.push(Event { at: ends + self.rng.u64(3_000..6_000), action });
            }
        }
    }

    /// Something fails while all nodes are frozen or the deny cache answers, and rare operations are asked for meanwhile.
    fn outage(
        &mut self,
        fleet: &FleetSpec,
        plans: &[PlanSpec],
        keys: u8,
        mut at: u64,
        events: &mut Vec<Event>,
    ) -> u64 {
        const QUESTIONS: u64 = 16;
        let mut usual = self.question(fleet, plans, keys);
        let is_rare = |plan: &PlanSpec| plan.has_quota() || plan.takes_permits();
        if let Some(rare) = plans.iter().position(is_rare).filter(|_| !self.one_in(3)) {
            usual.plans = vec![rare as u8];
        }
        (usual.cancel, usual.shadow, usual.cost) = (None, false, TOKEN);
        let takes_permits = usual.plans.iter().any(|plan| plans[usize::from(*plan)].takes_permits());
        let is_denied = fleet.deny_cache_ms > 0 && self.one_in(3);
        let mut ask = |at, operation, cost| {
            let question = Question { operation, cost, ..usual.clone() };
            events.push(Event { at, action: Action::Ask(question) });
        };
        if is_denied {
            (0..4).for_each(|nth| ask(at + nth * 2_000, Operation::Charge, MOST));
        }
        let usual_operation = if takes_permits { Operation::Acquire } else { Operation::Allow };
        (4..7).for_each(|nth| ask(at + nth * 2_000, usual_operation, TOKEN));
        at += 16_000;
        let pause = if is_denied { 2_000 } else { 60_000 };
        for nth in 1..=QUESTIONS {
            let refund = |once, time| Operation::Refund { of: 0, once, time };
            let operation = match self.rng.u8(..8) {
                _ if is_denied && takes_permits => Operation::AcquireWhenReady(20),
                0..=4 if is_denied => Operation::Reserve(60),
                _ if is_denied => Operation::UntilReady(10),
                0 | 1 => Operation::Peek,
                2 | 3 if takes_permits => Operation::AcquireWhenReady(20),
                2 => Operation::UntilReady(10),
                3 => Operation::AllowAsTold(1),
                4 | 5 => refund(false, self.this_window()),
                6 => refund(false, RefundTime::Unknown),
                _ => refund(true, RefundTime::Known),
            };
            ask(at + nth * pause, operation, TOKEN);
        }
        if !is_denied {
            let freeze = |node| Event { at, action: Action::Fault(Fault::Freeze(node, 1_000)) };
            events.extend((0..fleet.nodes).map(freeze));
        }
        events.push(Event { at: at + pause / 2, action: Action::Fault(self.fault(fleet)) });
        at + (QUESTIONS + 1) * pause
    }

    /// Many questions at once, half of them equal.
    fn burst(
        &mut self,
        fleet: &FleetSpec,
        plans: &[PlanSpec],
        keys: u8,
        mut at: u64,
        questions: usize,
        events: &mut Vec<Event>,
    ) -> u64 {
        let is_hot = self.style == Style::Leases;
        let burst = *self.pick(if is_hot { &[40, 100, 200] } else { &[1, 3, 10, 40, 100] });
        let spread = *self.pick(if is_hot { &[5, 100, 500] } else { &[0, 5, 500, 20_000] });
        let usual = self.question(fleet, plans, keys);
        for _ in 0..burst.min(questions - events.len()) {
            at += self.rng.u64(..=spread);
            let question = if self.one_in(2) { usual.clone() } else { self.question(fleet, plans, keys) };
            let instance = self.rng.u8(..fleet.instances);
            events.push(Event { at, action: Action::Ask(Question { instance, ..question }) });
        }
        at
    }

    fn change(&mut self, fleet: &FleetSpec, plans: &[PlanSpec]) -> Action {
        let instance = if self.one_in(3) { Some(self.rng.u8(..fleet.instances)) } else { None };
        Action::Change { plan: self.rng.u8(..plans.len() as u8), version: self.rng.u8(..4), instance }
    }

    fn question(&mut self, fleet: &FleetSpec, plans: &[PlanSpec], keys: u8) -> Question {
        let mut key = vec![self.rng.u8(..keys)];
        if keys > 1 && self.one_in(4) {
            key.push(self.rng.u8(..keys));
        }
        let mut plan = vec![self.rng.u8(..plans.len() as u8)];
        if self.one_in(5) {
            plan.push(self.rng.u8(..plans.len() as u8));
        }
        let takes_permits = plan.iter().any(|plan| plans[usize::from(*plan)].takes_permits());
        let operation = self.operation(takes_permits);
        let capacity = plan
            .iter()
            .flat_map(|plan| &plans[usize::from(*plan)].versions[0])
            .map(LimitSpec::capacity)
            .min();
        Question {
            instance: self.rng.u8(..fleet.instances),
            operation,
            keys: key,
            plans: plan,
            cost: self.cost(capacity.unwrap_or(TOKEN)),
            cancel: if self.one_in(12) { Some(self.rng.u32(..3_000)) } else { None },
            shadow: self.one_in(25),
        }
    }

    fn operation(&mut self, takes_permits: bool) -> Operation {
        let of = self.rng.u16(..);
        if self.style == Style::Leases && !takes_permits && self.rng.bool() {
            return match self.rng.u8(..8) {
                0 | 1 => Operation::Allow,
                2..=4 => Operation::AllowAsTold(1),
                _ => Operation::UntilReady(*self.pick(&[10, 100])),
            };
        }
        if takes_permits || (self.has_permits && self.style == Style::Permits && self.one_in(3)) {
            return match self.rng.u8(..16) {
                0..=4 => Operation::Acquire,
                5..=9 => Operation::Release { of, waits: self.rng.bool() },
                10..=12 => Operation::AcquireWhenReady(*self.pick(&[20, 300, 3_000])),
                13 => Operation::Peek,
                14 => Operation::Charge,
                _ if self.one_in(6) => Operation::Reset,
                _ => Operation::Acquire,
            };
        }
        if self.style == Style::Reservations && self.rng.bool() {
            return if self.rng.u8(..5) < 2 {
                Operation::Reserve(*self.pick(&[1, 2, 60]))
            } else {
                Operation::Settle { of, percent: *self.pick(&[0, 50, 100, 150, 400]) }
            };
        }
        match self.rng.u8(..40) {
            10 | 11 => Operation::Refund { of, once: false, time: self.refund_time() },
            12..=16 => Operation::AllowAsTold(3),
            17..=19 => Operation::UntilReady(*self.pick(&[10, 500, 2_000])),
            20..=22 => Operation::Peek,
            23..=25 => Operation::SpendUpTo,
            26 | 27 => Operation::Charge,
            28..=31 => Operation::Refund { of, once: self.one_in(3), time: self.refund_time() },
            32 if self.one_in(3) => Operation::Reset,
            33..=35 => Operation::Reserve(*self.pick(&[1, 2, 60])),
            36..=38 => Operation::Settle { of, percent: *self.pick(&[0, 50, 100, 150, 400]) },
            _ => Operation::Allow,
        }
    }

    fn refund_time(&mut self) -> RefundTime {
        match self.rng.u8(..3) {
            0 => RefundTime::Unknown,
            1 => self.this_window(),
            _ => RefundTime::Known,
        }
    }

    fn this_window(&self) -> RefundTime {
        if self.refunds_this_window { RefundTime::ThisWindow } else { RefundTime::Known }
    }

    fn cost(&mut self, capacity: i64) -> i64 {
        match self.rng.u8(..10) {
            0 => 0,
            1..=4 => TOKEN,
            5 => self.rng.i64(1..=capacity),
            6 => capacity,
            7 => self.rng.i64(1..=3) * TOKEN,
            8 => (capacity / 3).max(1),
            _ => self.rng.i64(1..=2 * TOKEN),
        }
    }

    fn fault(&mut self, fleet: &FleetSpec) -> Fault {
        let (instance, node) = (self.rng.u8(..fleet.instances), self.rng.u8(..fleet.nodes));
        let ms = *self.pick(&[5, 30, 120, 700, 2_500]);
        let step = *self.pick(&[-3_600_000, -5_000, -1_200, -500, 500, 2_000, 3_600_000]);
        match self.rng.u8(..21) {
            0 | 1 => Fault::Kill(instance, ms),
            2 | 3 => Fault::Pause(instance, ms),
            4 => Fault::StepInstance(instance, step),
            5 => Fault::StepNode(node, step),
            6 => Fault::Slow(*self.pick(&[2_000, 30_000, 90_000]), ms),
            7 => Fault::Partition(instance, node, ms),
            8 => Fault::LoseReplies(instance, node, ms),
            9 => Fault::Cut(node),
            10 => Fault::Freeze(node, ms),
            11 => Fault::Restart(node, ms),
            12 => Fault::FailOver(node, ms, *self.pick(&[0, 20, 200])),
            13 => Fault::FlushScripts(node),
            14 => Fault::OutOfMemory(node, ms),
            15 => Fault::DenyCommand(node, self.rng.u8(..), ms),
            16 => Fault::ReadOnly(node, ms),
            17 => Fault::Demote(node),
            18 => Fault::StaleMap(ms),
            19 => Fault::EndRuntime(instance),
            _ => {
                let how =
                    [Tampering::Delete, Tampering::Retype, Tampering::Garble, Tampering::NewerFormat(ms)];
                Fault::Tamper(node, self.rng.u16(..), *self.pick(&how))
            }
        }
    }
}
