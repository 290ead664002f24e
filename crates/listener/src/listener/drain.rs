//! Tells connections that the listener drains, and waits until all of them have ended.
//!
//! Connections check this on every poll, so that the check must be cheap: it loads one shared flag.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use foldhash::HashMap;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::sync::watch;

/// Drains the connections that hold one of its watchers.
pub(crate) struct Drain {
    state: Arc<DrainState>,
    /// Every watcher holds a receiver.
    watchers: watch::Sender<()>,
}

/// Tells one connection when to end. The drain waits until all watchers are dropped.
pub struct DrainWatcher {
    state: Arc<DrainState>,
    number: u64,
    is_waiting: bool,
    _held: watch::Receiver<()>,
}

pin_project! {
    /// A connection that is asked to end when the drain begins.
    pub(crate) struct DrainFuture<F, E> {
        watcher: DrainWatcher,
        #[pin]
        connection: F,
        // `None` once the connection was asked to end.
        end: Option<E>,
    }
}

#[derive(Default)]
struct DrainState {
    draining: AtomicBool,
    numbers: AtomicU64,
    /// By the number of the watcher. Locked only when a connection opens and when it ends.
    waiting: Mutex<HashMap<u64, Waker>>,
}

impl Drain {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), watchers: watch::Sender::new(()) }
    }

    pub(crate) fn watcher(&self) -> DrainWatcher {
        let number = self.state.numbers.fetch_add(1, Ordering::Relaxed);
        let state = Arc::clone(&self.state);
        DrainWatcher { state, number, is_waiting: false, _held: self.watchers.subscribe() }
    }

    /// Tells all connections, and resolves once the last of them has ended.
    pub(crate) async fn drain(&self) {
        self.state.draining.store(true, Ordering::SeqCst);
        let waiting: Vec<Waker> = self.state.waiting.lock().drain().map(|(_, waker)| waker).collect();
        waiting.into_iter().for_each(Waker::wake);
        self.watchers.closed().await;
    }
}

impl DrainWatcher {
    /// Runs the connection, and calls `end` on it when the drain begins. Await it in the task that runs the connection
    /// to its end, because that task is woken.
    pub(crate) const fn watch<F: Future, E: Fn(Pin<&mut F>)>(
        self,
        connection: F,
        end: E,
    ) -> DrainFuture<F, E> {
        DrainFuture { watcher: self, connection, end: Some(end) }
    }

    /// Runs a future. The output is `None` if the drain begins first. Await it in the same task each time.
    pub async fn unless_draining<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.is_draining(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    fn is_draining(&mut self, cx: &Context<'_>) -> bool {
        if !self.is_waiting {
            self.state.waiting.lock().insert(self.number, cx.waker().clone());
            self.is_waiting = true;
        }
        // Loaded after the waker is registered: a drain that begins meanwhile either is seen here or wakes the task.
        self.state.draining.load(Ordering::SeqCst)
    }
}

impl<F: Future, E: Fn(Pin<&mut F>)> Future for DrainFuture<F, E> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        if this.end.is_some()
            && this.watcher.is_draining(cx)
            && let Some(end) = this.end.take()
        {
            end(this.connection.as_mut());
        }
        this.connection.poll(cx)
    }
}

impl Drop for DrainWatcher {
    fn drop(&mut self) {
        self.state.waiting.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio_test::task::spawn;
    use tokio_test::{assert_pending, assert_ready, assert_ready_eq};

    use super::*;

    /// Takes some turns to end after it was asked to.
    struct Slow(Option<u32>);

    impl Slow {
        fn end(mut self: Pin<&mut Self>) {
            assert_eq!(self.0, None, "told once");
            self.0 = Some(2);
        }
    }

    impl Future for Slow {
        type Output = &'static str;

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<&'static str> {
            match &mut self.0 {
                None => Poll::Pending,
                Some(0) => Poll::Ready("ended"),
                Some(turns) => {
                    *turns -= 1;
                    Poll::Pending
                }
            }
        }
    }

    #[test]
    fn a_connection_is_woken_ends_in_its_own_time_and_is_waited_for() {
        let drain = Drain::new();
        let mut connection = spawn(drain.watcher().watch(Slow(None), Slow::end));
        assert_pending!(connection.poll());
        let mut drained = spawn(drain.drain());
        assert_pending!(drained.poll());
        assert!(connection.is_woken());
        assert_pending!(connection.poll());
        assert_pending!(connection.poll());
        assert_ready_eq!(connection.poll(), "ended");
        drop(connection);
        assert_ready!(drained.poll());
    }

    #[test]
    fn a_connection_that_opens_late_is_told_too() {
        let drain = Drain::new();
        let mut connection = spawn(drain.watcher().watch(Slow(None), Slow::end));
        let mut drained = spawn(drain.drain());
        assert_pending!(drained.poll());
        for _ in 0..2 {
            assert_pending!(connection.poll());
        }
        assert_ready_eq!(connection.poll(), "ended");
    }

    #[test]
    fn without_connections_the_drain_is_over_at_once() {
        let drain = Drain::new();
        let mut connection = spawn(drain.watcher().watch(Slow(None), Slow::end));
        assert_pending!(connection.poll());
        drop(connection);
        assert!(drain.state.waiting.lock().is_empty());
        assert_ready!(spawn(drain.drain()).poll());
    }
}
