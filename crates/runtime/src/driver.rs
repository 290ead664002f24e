//! The trait by which a simulation replaces tokio.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// A future that is spawned or awaited.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Drops a task when it is called.
pub type StopTask = Box<dyn Fn() + Send + Sync>;

/// Time, tasks, connections and random numbers under the control of a simulation.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// The monotonic time.
    fn now(&self) -> Instant;

    /// The time of the wall clock since the Unix epoch.
    fn wall_time(&self) -> Duration;

    /// Completes at this moment.
    fn sleep_until(&self, deadline: Instant) -> BoxFuture<()>;

    /// Starts a task. The returned function drops the task if it has not ended.
    fn spawn(&self, task: BoxFuture<()>) -> StopTask;

    /// A random number.
    fn random(&self) -> u64;

    /// Opens a connection. Refused unless the driver has a network.
    #[cfg(feature = "net")]
    fn connect(
        &self,
        _target: crate::DialTarget<'_>,
    ) -> BoxFuture<std::io::Result<Box<dyn crate::ByteStream>>> {
        Box::pin(async { Err(std::io::ErrorKind::Unsupported.into()) })
    }
}
