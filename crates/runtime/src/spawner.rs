//! Starts tasks.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::{Driver, StopTask};

/// A handle that starts tasks on one runtime, also from outside of it.
#[derive(Clone, Debug)]
pub struct Spawner(SpawnerKind);

#[derive(Clone, Debug)]
enum SpawnerKind {
    Tokio(Handle),
    Driven(Arc<dyn Driver>),
}

/// A handle to a task. Dropping it does not end the task.
pub struct Task(TaskKind);

enum TaskKind {
    Tokio(AbortHandle),
    Driven(StopTask),
}

impl Spawner {
    pub(crate) fn current() -> Option<Self> {
        Handle::try_current().ok().map(|handle| Self(SpawnerKind::Tokio(handle)))
    }

    pub(crate) const fn driven(driver: Arc<dyn Driver>) -> Self {
        Self(SpawnerKind::Driven(driver))
    }

    /// Starts a task. It is dropped if the runtime has ended.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(match &self.0 {
            SpawnerKind::Tokio(handle) => TaskKind::Tokio(handle.spawn(task).abort_handle()),
            SpawnerKind::Driven(driver) => TaskKind::Driven(driver.spawn(Box::pin(task))),
        })
    }

    /// True if both start tasks on the same runtime.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (SpawnerKind::Tokio(own), SpawnerKind::Tokio(other)) => own.id() == other.id(),
            (SpawnerKind::Driven(own), SpawnerKind::Driven(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }
}

impl Task {
    /// Drops the task if it has not ended.
    pub fn stop(&self) {
        match &self.0 {
            TaskKind::Tokio(task) => task.abort(),
            TaskKind::Driven(stop) => stop(),
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}
