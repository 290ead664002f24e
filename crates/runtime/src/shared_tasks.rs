//! Background tasks that serve callers on several runtimes, and restart on a caller's runtime when theirs has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::{BoxFuture, Runtime, Task};

/// Tasks that run together on one runtime until they are stopped, end, or the runtime ends.
#[derive(Debug, Default)]
pub struct SharedTasks {
    /// The number of tasks that have not ended. A runtime that ends drops all of its tasks.
    running: Arc<AtomicUsize>,
    state: Mutex<TasksState>,
}

#[derive(Debug, Default)]
struct TasksState {
    tasks: Vec<Task>,
    is_stopped: bool,
}

impl SharedTasks {
    /// True if no task runs: none was started, all have ended, or their runtime has ended.
    #[inline]
    pub fn have_ended(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    /// Starts tasks on the caller's runtime, unless some are running or they were stopped. Calls `on_end` when the last of them has
    /// been dropped.
    #[cold]
    pub fn start(
        &self,
        runtime: &Runtime,
        tasks: impl FnOnce() -> Vec<BoxFuture<()>>,
        on_end: impl Fn() + Send + Sync + 'static,
    ) {
        let mut state = self.state.lock();
        let Some(spawner) = runtime.spawner().filter(|_| !state.is_stopped && self.have_ended()) else {
            return;
        };
        let (tasks, on_end) = (tasks(), Arc::new(on_end));
        self.running.store(tasks.len(), Ordering::Release);
        let spawn = |task: BoxFuture<()>| {
            let guard = RunningGuard { running: Arc::clone(&self.running), on_end: Arc::clone(&on_end) };
            spawner.spawn(async move {
                let _guard = guard;
                task.await;
            })
        };
        state.tasks = tasks.into_iter().map(spawn).collect();
    }

    /// Drops the tasks, and prevents that they start again.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        state.tasks.drain(..).for_each(|task| task.stop());
    }
}

/// Counts a task as running until it is dropped, which a runtime that ends does, too.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn endless() -> Vec<BoxFuture<()>> {
        vec![Box::pin(std::future::pending()), Box::pin(std::future::pending())]
    }

    #[test]
    fn tasks_whose_runtime_has_ended_start_on_the_next_callers() {
        let (tasks, ends) = (SharedTasks::default(), Arc::new(AtomicUsize::new(0)));
        tasks.start(&Runtime::tokio(), endless, || {});
        assert!(tasks.have_ended(), "nothing starts without a runtime");
        for times in 1..=3 {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let ends = Arc::clone(&ends);
                tasks.start(&Runtime::tokio(), endless, move || _ = ends.fetch_add(1, Ordering::SeqCst));
                assert!(!tasks.have_ended());
                tasks.start(&Runtime::tokio(), || unreachable!("they run"), || {});
            });
            drop(runtime);
            assert!(tasks.have_ended());
            assert_eq!(ends.load(Ordering::SeqCst), times, "told once, by the last");
        }
    }

    #[tokio::test]
    async fn stopped_tasks_are_dropped_and_start_no_more() {
        let (tasks, ended) = (SharedTasks::default(), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&ended);
        tasks.start(&Runtime::tokio(), endless, move || flag.store(true, Ordering::SeqCst));
        tasks.stop();
        while !ended.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        tasks.start(&Runtime::tokio(), endless, || {});
        assert!(tasks.have_ended());
    }
}
