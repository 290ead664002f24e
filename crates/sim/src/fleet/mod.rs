//! Runs a scenario: delivers what is sent, polls who is ready, moves the time, and lets the judges see everything.

mod caller;
pub(crate) mod cluster;
mod instance;
pub(crate) mod node;
pub(crate) mod report;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use spile_limiter::Permit;
use spile_resp::{Value, parse};

use self::caller::Caller;
use self::instance::Instance;
use self::node::{Node, Scripts, denied_command};
use self::report::{Reports, What};
use crate::coverage::Coverage;
use crate::network::{Delivery, NodeState};
use crate::oracle::script::BucketId;
use crate::oracle::{Broken, Judge};
use crate::redis::{Refusals, Server};
use crate::scenario::{Action, Fault, Operation, Question, Scenario, Tampering};
use crate::scheduler::{MS, Nanos, SECOND, Scheduler, US};
use crate::trace::Trace;

/// How long the fleet runs after the last event: all faults end, and leases, permits and reservations end or are renewed.
const QUIET: Nanos = 10 * SECOND;
/// How long instances take to return what they hold.
const SHUTDOWN: Nanos = 4 * SECOND;
/// More steps than any run takes: a task that wakes itself without end is a bug.
const MOST_STEPS: u64 = 20_000_000;

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The promise that was broken first.
    pub broken: Option<Broken>,
    /// A hash of the trace, if there was one.
    pub trace_hash: u64,
    /// Questions that were asked.
    pub questions: u64,
    /// Questions that the script decided.
    pub executed: u64,
    /// The virtual time that passed.
    pub lasted: Nanos,
}

/// Interpreters of earlier runs, which are expensive to make.
#[derive(Default)]
pub struct Servers(Vec<Server>);

/// A scenario while it runs.
struct Run<'a> {
    scenario: &'a Scenario,
    scheduler: Scheduler,
    nodes: Vec<Node>,
    /// The instances by their place in the scenario. A killed one is missing until the next one starts.
    instances: Vec<Option<Arc<Instance>>>,
    /// The versions of the plans that an instance starts with.
    versions: Vec<u8>,
    reports: Reports,
    judge: Judge,
    trace: Trace,
    /// Repairs that end faults, by their time.
    repairs: BTreeMap<(Nanos, u64), Repair>,
    questions: u64,
    executed: u64,
}

/// The end of a fault.
enum Repair {
    Start(usize),
    Latency,
    Refusals(usize),
    Version(usize, Vec<u8>),
}

/// Runs a scenario. The trace is written if it is wanted.
pub fn run(
    scenario: &Scenario,
    servers: &mut Servers,
    trace: Trace,
    coverage: &mut Coverage,
) -> (Outcome, Trace) {
    let mut run = Run::new(scenario, servers, trace, std::mem::take(coverage));
    let broken = run.all().err();
    if let Some(broken) = &broken {
        run.trace.line(run.scheduler.now(), || format!("BROKEN {broken}"));
    }
    let outcome = Outcome {
        broken,
        trace_hash: run.trace.hash(),
        questions: run.questions,
        executed: run.executed,
        lasted: run.scheduler.now(),
    };
    let instances = run.scheduler.0.lock().instances.len();
    (0..instances).for_each(|at| run.scheduler.kill(at));
    *coverage = std::mem::take(&mut run.judge.coverage);
    servers.0.extend(run.nodes.drain(..).map(|node| node.server));
    (outcome, run.trace)
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, servers: &mut Servers, trace: Trace, coverage: Coverage) -> Self {
        let scheduler = Scheduler::new(scenario.seed);
        let spec = &scenario.fleet;
        let fails_over =
            |event: &crate::scenario::Event| matches!(event.action, Action::Fault(Fault::FailOver(..)));
        let keeps_former = scenario.events.iter().any(fails_over);
        let scripts = Rc::new(Scripts::new());
        let nodes: Vec<Node> = (0..usize::from(spec.nodes))
            .map(|number| {
                let server = servers.0.pop().unwrap_or_default();
                Node::new(server, number, spec, keeps_former, Rc::clone(&scripts))
            })
            .collect();
        scheduler.0.lock().network.nodes = vec![NodeState::default(); nodes.len()];
        let reports = Reports::default();
        let versions = vec![0; scenario.plans.len()];
        let start = |_| Some(Instance::start(&scheduler, spec, &scenario.plans, &versions, &reports));
        let instances = (0..spec.instances).map(start).collect();
        let judge = Judge::new(scenario, coverage);
        Self {
            scenario,
            scheduler,
            nodes,
            instances,
            versions,
            reports,
            judge,
            trace,
            repairs: BTreeMap::new(),
            questions: 0,
            executed: 0,
        }
    }

    fn all(&mut self) -> Result<(), Broken> {
        for event in &self.scenario.events {
            self.until(event.at * US)?;
            self.happen(&event.action)?;
        }
        let ends = self.scheduler.now() + QUIET;
        self.until(ends)?;
        self.ask_for_recovery();
        self.until(ends + SECOND)?;
        self.audit()?;
        self.shut_down();
        self.until(ends + SECOND + SHUTDOWN)?;
        self.finish()
    }

    /// Runs until this moment.
    fn until(&mut self, end: Nanos) -> Result<(), Broken> {
        for _ in 0..MOST_STEPS {
            self.scheduler.fire_timers();
            if self.deliver()? || self.repair() {
                continue;
            }
            if self.scheduler.poll_one() {
                self.judge_reports()?;
                continue;
            }
            let network = self.scheduler.0.lock().network.events.keys().next().map(|(at, _)| *at);
            let repair = self.repairs.keys().next().map(|(at, _)| *at);
            let next = [network, repair, self.scheduler.next_timer(), self.scheduler.next_resumption()];
            let next = next.into_iter().flatten().min().unwrap_or(Nanos::MAX);
            if next >= end {
                self.scheduler.advance_to(end);
                return Ok(());
            }
            self.scheduler.advance_to(next);
        }
        Err(Broken::new("progress", format!("no end after {MOST_STEPS} steps")))
    }

    /// Delivers what has arrived. False if nothing has.
    fn deliver(&mut self) -> Result<bool, Broken> {
        let mut state = self.scheduler.0.lock();
        let Some(delivery) = state.take_delivery() else { return Ok(false) };
        match delivery {
            Delivery::Wake(waker) => {
                drop(state);
                waker.wake();
            }
            Delivery::ToClient(link, bytes) => {
                let waker = state.arrive(link, &bytes);
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Delivery::ToNode(link, bytes) => {
                drop(state);
                self.serve(link, &bytes)?;
            }
        }
        Ok(true)
    }

    /// Executes the commands in these bytes.
    fn serve(&mut self, link: u64, bytes: &[u8]) -> Result<(), Broken> {
        let now = self.scheduler.now();
        let mut commands = Vec::new();
        let (instance, node, is_demoted) = {
            let mut state = self.scheduler.0.lock();
            let Some(own) = state.network.links.get_mut(&link) else { return Ok(()) };
            let (instance, node, is_demoted) = (own.instance, own.node, own.is_demoted);
            own.unread.extend_from_slice(bytes);
            // A command is an array of strings, as a reply can be.
            while let Ok(Some((command, used))) = parse(&own.unread) {
                own.unread.drain(..used);
                commands.push(command);
            }
            if state.network.nodes[node].down_until > now {
                return Ok(());
            }
            (instance, node, is_demoted)
        };
        let mut replies = Vec::new();
        for command in &commands {
            let parts: Vec<&[u8]> = command.as_array().into_iter().flatten().filter_map(text).collect();
            let start = replies.len();
            let own = &mut self.nodes[node];
            let judged = if is_demoted {
                own.execute_as_replica(now, &parts, &mut replies)
            } else {
                own.execute(now, &parts, &mut replies)
            };
            self.trace.line(now, || {
                let done = match &judged {
                    Ok(questions) if !questions.is_empty() => crate::trace::executed(questions),
                    _ => {
                        let reply = crate::trace::reply(&replies[start..]);
                        format!("{} = {reply}", crate::trace::command(&parts))
                    }
                };
                format!("i{instance} -> node{node} {done}")
            });
            let executed = judged.map_err(|what| Broken::new("script", format!("node{node}: {what}")))?;
            self.executed += executed.len() as u64;
            self.judge.executed(now, instance, &executed)?;
        }
        self.scheduler.0.lock().send_down(link, replies);
        Ok(())
    }

    fn repair(&mut self) -> bool {
        let now = self.scheduler.now();
        let Some(entry) = self.repairs.first_entry().filter(|entry| entry.key().0 <= now) else {
            return false;
        };
        let repair = entry.remove();
        match repair {
            Repair::Start(at) => {
                let spec = &self.scenario.fleet;
                let instance = Instance::start(
                    &self.scheduler,
                    spec,
                    &self.scenario.plans,
                    &self.versions,
                    &self.reports,
                );
                self.trace.line(now, || format!("i{} starts", instance.number));
                self.instances[at] = Some(instance);
            }
            Repair::Latency => self.scheduler.0.lock().network.latency = (50 * US, 300 * US),
            Repair::Refusals(node) => self.nodes[node].refuse(Refusals::default()),
            Repair::Version(node, key) => {
                if !self.nodes[node].restore_version(now, &key) {
                    self.later(now + 100 * MS, Repair::Version(node, key));
                }
            }
        }
        true
    }

    fn judge_reports(&mut self) -> Result<(), Broken> {
        let reports = std::mem::take(&mut *self.reports.lock());
        for report in reports {
            self.trace.report(&report);
            first(self.judge.report(&report, &self.nodes))?;
            if matches!(report.what, What::Acquired { .. }) {
                self.count_holders()?;
            }
        }
        Ok(())
    }

    fn count_holders(&self) -> Result<(), Broken> {
        let held: Vec<_> = self.instances.iter().flatten().map(|instance| instance.held.lock()).collect();
        let permits = held.iter().flat_map(|held| &held.permits);
        self.judge.held(permits.filter(|(_, permit)| permit.is_held()).map(|(id, _)| id.as_str()))
    }

    fn happen(&mut self, action: &Action) -> Result<(), Broken> {
        let now = self.scheduler.now();
        match action {
            Action::Ask(question) => {
                self.judge_idle_places()?;
                self.judge_lost_permits()?;
                self.questions += 1;
                if let Some(instance) = &self.instances[usize::from(question.instance)] {
                    let (number, question) = (self.questions, question.clone());
                    self.trace.line(now, || format!("q{number} at i{}: {question:?}", instance.number));
                    Caller::start(instance, question, number);
                }
            }
            Action::Fault(fault) => {
                self.trace.line(now, || format!("{fault:?}"));
                self.fail(*fault);
                self.judge_reports()?;
            }
            Action::Change { plan, version, instance } => {
                self.trace.line(now, || format!("{action:?}"));
                let changed = self.scenario.plans[usize::from(*plan)].plan(*plan, *version);
                if instance.is_none() {
                    self.versions[usize::from(*plan)] = *version;
                }
                for (at, own) in self.instances.iter().enumerate() {
                    if instance.is_none_or(|only| usize::from(only) == at)
                        && let Some(own) = own
                    {
                        own.plans.put(&changed);
                        own.limiter.limits_changed();
                    }
                }
                self.judge.plan_changed(now, *plan, instance.is_none());
            }
        }
        Ok(())
    }

    fn fail(&mut self, fault: Fault) {
        let now = self.scheduler.now();
        let after = |ms: u32| now + Nanos::from(ms) * MS;
        self.judge.failed(now, fault);
        match fault {
            Fault::Kill(at, ms) => {
                if let Some(instance) = self.instances[usize::from(at)].take() {
                    self.judge.killed(instance.number);
                    self.scheduler.kill(instance.number);
                    let own = instance.number;
                    self.wake(|state| state.cut(|link| link.instance == own));
                    drop(instance);
                    self.later(after(ms), Repair::Start(usize::from(at)));
                }
            }
            Fault::Pause(at, ms) => {
                if let Some(instance) = &self.instances[usize::from(at)] {
                    self.judge.paused(instance.number, after(ms));
                    self.scheduler.pause(instance.number, after(ms));
                }
            }
            Fault::EndRuntime(at) => {
                if let Some(instance) = &self.instances[usize::from(at)] {
                    self.judge.runtime_ended(now, instance.number);
                    self.scheduler.end_runtime(instance.number);
                }
            }
            Fault::StepInstance(at, ms) => {
                if let Some(instance) = &self.instances[usize::from(at)] {
                    instance.clock.step(ms * 1_000);
                }
            }
            Fault::StepNode(node, ms) => self.nodes[usize::from(node)].step(ms * 1_000),
            Fault::Slow(us, ms) => {
                self.scheduler.0.lock().network.latency = (50 * US, Nanos::from(us) * US);
                self.later(after(ms), Repair::Latency);
            }
            Fault::Partition(at, node, ms) => {
                if let Some(instance) = &self.instances[usize::from(at)] {
                    let between = (instance.number, usize::from(node));
                    self.scheduler.0.lock().network.partitions.insert(between, after(ms));
                }
            }
            Fault::LoseReplies(at, node, ms) => {
                if let Some(instance) = &self.instances[usize::from(at)] {
                    let between = (instance.number, usize::from(node));
                    self.scheduler.0.lock().network.lost_replies.insert(between, after(ms));
                }
            }
            Fault::Cut(node) => self.wake(|state| state.cut(|link| link.node == usize::from(node))),
            Fault::Freeze(node, ms) => {
                self.scheduler.0.lock().freeze(usize::from(node), after(ms));
            }
            Fault::Restart(node, ms) => {
                self.take_down(usize::from(node), after(ms));
                self.nodes[usize::from(node)].lose_everything();
            }
            Fault::FailOver(node, ms, behind_ms) => {
                self.take_down(usize::from(node), after(ms));
                let own = &mut self.nodes[usize::from(node)];
                own.fail_over(now, Nanos::from(behind_ms) * MS);
                // A write that was undone may be back.
                for key in own.oracle.newer_keys() {
                    self.later(after(ms) + SECOND, Repair::Version(node.into(), key));
                }
            }
            Fault::FlushScripts(node) => self.nodes[usize::from(node)].server.flush_scripts(),
            Fault::OutOfMemory(node, ms) => {
                self.refuse(
                    usize::from(node),
                    after(ms),
                    Refusals { out_of_memory: true, ..Refusals::default() },
                );
            }
            Fault::DenyCommand(node, command, ms) => {
                let acl_denied = denied_command(command);
                self.refuse(usize::from(node), after(ms), Refusals { acl_denied, ..Refusals::default() });
            }
            Fault::Tamper(node, nth, how) => {
                let key = self.nodes[usize::from(node)].tamper(now, nth, how);
                if let (Some(key), Tampering::NewerFormat(ms)) = (key, how) {
                    self.judge.must_be_refused(String::from_utf8_lossy(&key).into_owned());
                    self.later(after(ms), Repair::Version(usize::from(node), key));
                }
            }
            Fault::Demote(node) => {
                let links = &mut self.scheduler.0.lock().network.links;
                let own = links.values_mut().filter(|link| link.node == usize::from(node));
                own.for_each(|link| link.is_demoted = true);
            }
            Fault::StaleMap(ms) => {
                self.nodes.iter_mut().for_each(|node| node.map_is_stale_until = after(ms));
            }
            Fault::ReadOnly(node, ms) => {
                self.refuse(
                    usize::from(node),
                    after(ms),
                    Refusals { read_only: true, ..Refusals::default() },
                );
            }
        }
    }

    fn later(&mut self, at: Nanos, repair: Repair) {
        let number = self.scheduler.0.lock().number();
        self.repairs.insert((at, number), repair);
    }

    fn wake(&self, act: impl FnOnce(&mut crate::scheduler::State) -> Vec<std::task::Waker>) {
        let wakers = act(&mut self.scheduler.0.lock());
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    fn take_down(&mut self, node: usize, until: Nanos) {
        self.scheduler.0.lock().network.nodes[node].down_until = until;
        self.wake(|state| state.cut(|link| link.node == node));
    }

    fn refuse(&mut self, node: usize, until: Nanos, refusals: Refusals) {
        self.nodes[node].refuse(refusals);
        self.later(until, Repair::Refusals(node));
    }

    /// Asks each instance once more, now that everything has healed: what only reads, and what writes.
    fn ask_for_recovery(&mut self) {
        let instances: Vec<_> = self.instances.iter().flatten().cloned().collect();
        for (instance, at) in instances.iter().zip(0..) {
            for (operation, cost) in [(Operation::Peek, 0), (Operation::Charge, 1)] {
                self.questions += 1;
                let (keys, plans) = (vec![0], vec![0]);
                let question =
                    Question { instance: at, operation, keys, plans, cost, cancel: None, shadow: false };
                self.judge.expect_recovery(self.questions);
                Caller::start(instance, question, self.questions);
            }
        }
    }

    /// Compares what callers hold with what the store has.
    fn audit(&mut self) -> Result<(), Broken> {
        self.judge_lost_permits()?;
        let now = self.scheduler.now();
        for instance in self.instances.iter().flatten() {
            let held = instance.held.lock();
            for (id, _) in held.permits.iter().filter(|(_, permit)| permit.is_held()) {
                let Some(places) = self.judge.places_of(id) else { continue };
                for bucket in places {
                    let node = self.judge.node_of(&bucket.key);
                    let own = &mut self.nodes[node];
                    let until = own.permit_until(now, &bucket.key, id);
                    let server_us = own.clock_us(now);
                    if until.is_none_or(|until| until <= server_us) {
                        let key = &bucket.key;
                        let what = format!("i{}: {id} is held here, and not in {key}", instance.number);
                        let is_changed = self.judge.has_changed(key);
                        let oracle = if is_changed { "permits held after a change" } else { "permit kept" };
                        return Err(Broken::new(oracle, what));
                    }
                }
            }
        }
        Ok(())
    }

    /// A place without a holder is free soon.
    fn judge_lost_permits(&self) -> Result<(), Broken> {
        for instance in self.instances.iter().flatten() {
            let held = instance.held.lock();
            let is_lost = |(id, permit): &&(String, Permit)| !permit.is_held() && self.judge.keeps(id);
            if let Some((id, _)) = held.permits.iter().find(is_lost) {
                return Err(Broken::new("permit kept", format!("i{} lost {id}", instance.number)));
            }
        }
        Ok(())
    }

    fn judge_idle_places(&mut self) -> Result<(), Broken> {
        let now = self.scheduler.now();
        let held: Vec<_> = self.instances.iter().flatten().map(|instance| instance.held.lock()).collect();
        let ids = held.iter().flat_map(|held| &held.permits).map(|(id, _)| id.as_str());
        let idle = self.judge.idle_places(now, ids);
        drop(held);
        let split: Vec<String> = idle
            .iter()
            .filter(|(id, place)| {
                let node = |place: &BucketId| self.judge.node_of(&place.key);
                idle.iter().any(|(other, elsewhere)| other == id && node(elsewhere) != node(place))
            })
            .map(|(id, _)| id.clone())
            .collect();
        for (id, bucket) in idle {
            let node = self.judge.node_of(&bucket.key);
            let own = &mut self.nodes[node];
            let server_us = own.clock_us(now);
            if own.permit_until(now, &bucket.key, &id).is_some_and(|until| until > server_us) {
                let what = format!("{id} is still in {}, and nobody holds it", bucket.key);
                let oracle = if split.contains(&id) { "permit freed, split" } else { "permit freed" };
                return Err(Broken::new(oracle, what));
            }
        }
        Ok(())
    }

    /// Gives back what all instances hold.
    fn shut_down(&mut self) {
        for instance in self.instances.iter().flatten() {
            let held = std::mem::take(&mut *instance.held.lock());
            let own = Arc::clone(instance);
            instance.spawn(async move {
                drop(held);
                own.limiter.return_leases().await;
                own.limiter.release_permits().await;
            });
        }
    }

    fn finish(&mut self) -> Result<(), Broken> {
        self.judge_reports()?;
        let now = self.scheduler.now();
        for (id, bucket) in self.judge.all_places() {
            let node = self.judge.node_of(&bucket.key);
            let own = &mut self.nodes[node];
            let server_us = own.clock_us(now);
            if own.permit_until(now, &bucket.key, &id).is_some_and(|until| until > server_us) {
                let what = format!("{id} is still in {} after all were released", bucket.key);
                return Err(Broken::new("permit returned", what));
            }
        }
        first(self.judge.finish(now))
    }
}

fn first(found: Vec<Broken>) -> Result<(), Broken> {
    found.into_iter().next().map_or(Ok(()), Err)
}

fn text(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}
