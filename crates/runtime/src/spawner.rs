//! Starts tasks.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

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
pub struct Task(StopTask);

impl Spawner {
    /// The spawner of a driver, or else of the tokio runtime of the caller.
    pub(crate) fn new(driver: Option<&Arc<dyn Driver>>) -> Option<Self> {
        match driver {
            Some(driver) => Some(Self(SpawnerKind::Driven(Arc::clone(driver)))),
            None => Some(Self(SpawnerKind::Tokio(Handle::try_current().ok()?))),
        }
    }

    /// Starts a task. It is dropped if the runtime has ended.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(match &self.0 {
            SpawnerKind::Tokio(handle) => {
                let task = handle.spawn(task).abort_handle();
                Box::new(move || task.abort())
            }
            SpawnerKind::Driven(driver) => driver.spawn(Box::pin(task)),
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
        (self.0)();
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}
