//! Background tasks that serve the callers of several runtimes: when theirs ends, they are started again on a caller's.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// A task, before it is started.
pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks that run together on one runtime until they are stopped or the runtime ends.
#[derive(Default)]
pub(crate) struct SharedTasks {
    /// How many have not ended. All of them end with their runtime.
    running: Arc<AtomicUsize>,
    state: Mutex<TasksState>,
}

#[derive(Default)]
struct TasksState {
    handles: Vec<AbortHandle>,
    is_stopped: bool,
}

impl SharedTasks {
    /// True if none runs: they were not started yet, or their runtime has ended.
    #[inline]
    pub(crate) fn have_ended(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    /// Starts tasks on the current runtime, unless some run or they were stopped. Calls `on_end` when the last of them has ended,
    /// after its future was dropped.
    #[cold]
    pub(crate) fn start(
        &self,
        tasks: impl FnOnce() -> Vec<TaskFuture>,
        on_end: impl Fn() + Send + Sync + 'static,
    ) {
        let mut state = self.state.lock();
        let Some(runtime) = Handle::try_current().ok().filter(|_| !state.is_stopped && self.have_ended())
        else {
            return;
        };
        let (tasks, on_end) = (tasks(), Arc::new(on_end));
        self.running.store(tasks.len(), Ordering::Release);
        let spawn = |task: TaskFuture| {
            let guard = RunningGuard { running: Arc::clone(&self.running), on_end: Arc::clone(&on_end) };
            let guarded = async move {
                let _guard = guard;
                task.await;
            };
            runtime.spawn(guarded).abort_handle()
        };
        state.handles = tasks.into_iter().map(spawn).collect();
    }

    /// Ends the tasks, and starts them no more.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        for task in state.handles.drain(..) {
            task.abort();
        }
    }
}

/// Counts a task as running until it is dropped, also by a runtime that ends.
struct RunningGuard<F: Fn()> {
    running: Arc<AtomicUsize>,
    on_end: Arc<F>,
}

impl<F: Fn()> Drop for RunningGuard<F> {
    fn drop(&mut self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            (self.on_end)();
        }
    }
}
