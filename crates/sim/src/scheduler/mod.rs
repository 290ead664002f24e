//! Time, tasks and random numbers of the whole fleet, in one thread.
//!
//! Nothing happens by itself: a [`Scheduler`] polls one task at a time, chosen by a seed, and moves the time to the next event when
//! none is ready. Each instance has its own [`Driver`](driver::InstanceDriver), so that it can be paused and killed.

pub mod driver;
mod sleep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use spile_runtime::BoxFuture;

use crate::network::Network;

/// Nanoseconds since the start of the run.
pub type Nanos = u64;
/// One microsecond.
pub const US: Nanos = 1_000;
/// One millisecond.
pub const MS: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// How long the poll of a task takes.
const POLL: Nanos = US;

/// The tasks of all instances and the time. Clones share them.
#[derive(Clone)]
pub struct Scheduler(pub(crate) Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) now: Nanos,
    pub(crate) rng: fastrand::Rng,
    pub(crate) network: Network,
    pub(crate) instances: Vec<InstanceState>,
    tasks: BTreeMap<u64, Task>,
    /// Grows with every task, timer and event, so that those of one moment have an order.
    next: u64,
    timers: BTreeMap<(Nanos, u64), Waker>,
}

/// A process of the fleet.
pub(crate) struct InstanceState {
    pub(crate) is_alive: bool,
    pub(crate) paused_until: Nanos,
    /// How much faster its monotonic clock is, in parts per million.
    pub(crate) drift_ppm: i64,
    /// Tasks to poll, in the order of their numbers: some channels wake their receivers in an order that differs between runs.
    ready: Vec<u64>,
}

impl InstanceState {
    fn be_ready(&mut self, task: u64) {
        let at = self.ready.partition_point(|other| *other < task);
        self.ready.insert(at, task);
    }
}

struct Task {
    instance: usize,
    /// True if an instance started it, false if it is a caller.
    is_background: bool,
    /// `None` while it is polled.
    future: Option<BoxFuture<()>>,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    scheduler: Scheduler,
    instance: usize,
    task: u64,
    is_queued: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.scheduler.0.lock().instances[self.instance].be_ready(self.task);
        }
    }
}

impl State {
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn is_running(&self, instance: usize) -> bool {
        let state = &self.instances[instance];
        state.is_alive && state.paused_until <= self.now
    }

    /// A ready task of an instance that is not paused.
    fn take_ready(&mut self) -> Option<u64> {
        let running = |state: &Self, at: usize| state.is_running(at) && !state.instances[at].ready.is_empty();
        let count = (0..self.instances.len()).filter(|at| running(self, *at)).count();
        if count == 0 {
            return None;
        }
        let nth = self.rng.usize(..count);
        let chosen = (0..self.instances.len()).filter(|at| running(self, *at)).nth(nth)?;
        let ready = &mut self.instances[chosen].ready;
        let at = self.rng.usize(..ready.len());
        Some(ready.remove(at))
    }
}

impl Scheduler {
    /// A fleet without instances at the start of time.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: 0,
            rng: fastrand::Rng::with_seed(seed),
            network: Network::default(),
            instances: Vec::new(),
            tasks: BTreeMap::new(),
            next: 0,
            timers: BTreeMap::new(),
        })))
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.0.lock().now
    }

    /// Adds an instance, and returns its number.
    pub fn add_instance(&self, drift_ppm: i64) -> usize {
        let mut state = self.0.lock();
        state.instances.push(InstanceState { is_alive: true, paused_until: 0, drift_ppm, ready: Vec::new() });
        state.instances.len() - 1
    }

    /// True until the instance is killed.
    pub fn is_alive(&self, instance: usize) -> bool {
        self.0.lock().instances[instance].is_alive
    }

    /// Polls no task of this instance until then.
    pub fn pause(&self, instance: usize, until: Nanos) {
        self.0.lock().instances[instance].paused_until = until;
    }

    /// True if the instance is paused.
    pub fn is_paused(&self, instance: usize) -> bool {
        let state = self.0.lock();
        state.instances[instance].paused_until > state.now
    }

    /// Drops all tasks of an instance, as the kernel does.
    pub fn kill(&self, instance: usize) {
        self.0.lock().instances[instance].is_alive = false;
        self.drop_tasks(|task| task.instance == instance);
    }

    /// Drops the background tasks of an instance, as a runtime does that ends. Callers go on, on another one.
    pub fn end_runtime(&self, instance: usize) {
        self.drop_tasks(|task| task.instance == instance && task.is_background);
    }

    fn drop_tasks(&self, ends: impl Fn(&Task) -> bool) {
        let dropped: BTreeMap<u64, Task> = {
            let mut state = self.0.lock();
            let (dropped, others) =
                std::mem::take(&mut state.tasks).into_iter().partition(|(_, task)| ends(task));
            state.tasks = others;
            dropped
        };
        // Dropping what they own spawns and wakes other tasks.
        drop(dropped);
    }

    /// Starts a task of an instance, for a caller or in the background. Returns its number, or `None` if the instance was killed.
    pub fn spawn(&self, instance: usize, is_background: bool, future: BoxFuture<()>) -> Option<u64> {
        let mut state = self.0.lock();
        if !state.instances[instance].is_alive {
            drop(state);
            drop(future);
            return None;
        }
        let task = state.number();
        let is_queued = AtomicBool::new(true);
        let waker = Arc::new(TaskWaker { scheduler: self.clone(), instance, task, is_queued });
        state.tasks.insert(task, Task { instance, is_background, future: Some(future), waker });
        state.instances[instance].be_ready(task);
        Some(task)
    }

    /// Drops a task that has not ended.
    pub fn stop(&self, task: u64) {
        let stopped = self.0.lock().tasks.remove(&task);
        drop(stopped);
    }

    /// Polls one ready task. False if none is ready.
    pub fn poll_one(&self) -> bool {
        let (task, mut future, waker) = loop {
            let mut state = self.0.lock();
            let Some(number) = state.take_ready() else { return false };
            // A task that has ended meanwhile is skipped.
            let Some(task) = state.tasks.get_mut(&number) else { continue };
            let Some(future) = task.future.take() else { continue };
            let waker = Arc::clone(&task.waker);
            state.now += POLL;
            break (number, future, waker);
        };
        waker.is_queued.store(false, Ordering::Relaxed);
        let polled = future.as_mut().poll(&mut Context::from_waker(&Waker::from(waker)));
        let mut state = self.0.lock();
        let ended = match state.tasks.get_mut(&task) {
            Some(slot) if polled.is_pending() => {
                slot.future = Some(future);
                return true;
            }
            _ => state.tasks.remove(&task),
        };
        drop(state);
        drop((ended, future));
        true
    }

    /// Wakes those whose time has come.
    pub fn fire_timers(&self) {
        let due = {
            let mut state = self.0.lock();
            let past = (state.now + 1, 0);
            let later = state.timers.split_off(&past);
            std::mem::replace(&mut state.timers, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    /// When the next timer is due.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.0.lock().timers.keys().next().map(|(at, _)| *at)
    }

    /// When the next paused instance resumes.
    pub fn next_resumption(&self) -> Option<Nanos> {
        let state = self.0.lock();
        let paused = state.instances.iter().filter(|instance| instance.is_alive);
        paused.map(|instance| instance.paused_until).filter(|until| *until > state.now).min()
    }

    /// Moves the time forward.
    pub fn advance_to(&self, then: Nanos) {
        let mut state = self.0.lock();
        state.now = state.now.max(then);
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        self.0.lock().rng.u64(..)
    }

    /// Polls a future on behalf of a test, without an instance.
    pub fn poll_now<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scheduler")
    }
}
