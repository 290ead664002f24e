//! Tells connections that it is time to end, and waits until all have.
//!
//! A connection asks on every turn, so that asking must be next to free: one look at a flag that all of them share.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use foldhash::HashMap;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::sync::watch;

/// Says farewell to its guests.
pub(crate) struct Farewell {
    words: Arc<Words>,
    /// Every guest holds a receiver for as long as it stays.
    guests: watch::Sender<()>,
}

/// Somebody who ends soon after the farewell.
pub(crate) struct Guest {
    words: Arc<Words>,
    number: u64,
    is_listening: bool,
    _stays: watch::Receiver<()>,
}

pin_project! {
    /// What a guest does until it leaves.
    pub(crate) struct Stay<F, L> {
        guest: Guest,
        #[pin]
        future: F,
        // Gone once it has been asked to.
        leave: Option<L>,
    }
}

#[derive(Default)]
struct Words {
    said: AtomicBool,
    arrivals: AtomicU64,
    /// By the guest's number. Touched when a guest comes and when it goes.
    listening: Mutex<HashMap<u64, Waker>>,
}

impl Farewell {
    pub(crate) fn new() -> Self {
        Self { words: Arc::default(), guests: watch::Sender::new(()) }
    }

    pub(crate) fn guest(&self) -> Guest {
        let number = self.words.arrivals.fetch_add(1, Ordering::Relaxed);
        let words = Arc::clone(&self.words);
        Guest { words, number, is_listening: false, _stays: self.guests.subscribe() }
    }

    /// Says it, and resolves once every guest has gone.
    pub(crate) async fn say(&self) {
        self.words.said.store(true, Ordering::SeqCst);
        let listening: Vec<Waker> = self.words.listening.lock().drain().map(|(_, waker)| waker).collect();
        listening.into_iter().for_each(Waker::wake);
        self.guests.closed().await;
    }
}

impl Guest {
    /// Runs the future, which is asked to `leave` once the farewell has been said. To be awaited by the task that runs
    /// it to its end: that is the one to be woken.
    pub(crate) const fn stay<F: Future, L: Fn(Pin<&mut F>)>(self, future: F, leave: L) -> Stay<F, L> {
        Stay { guest: self, future, leave: Some(leave) }
    }

    /// What the future resolves to, unless the farewell is said first. To be awaited like [`stay`](Self::stay).
    pub(crate) async fn unless_said<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.hears_it(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    fn hears_it(&mut self, cx: &Context<'_>) -> bool {
        if !self.is_listening {
            self.words.listening.lock().insert(self.number, cx.waker().clone());
            self.is_listening = true;
        }
        // Looked at after the waker is in place: whoever says it now either is seen or wakes.
        self.words.said.load(Ordering::SeqCst)
    }
}

impl<F: Future, L: Fn(Pin<&mut F>)> Future for Stay<F, L> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        if this.leave.is_some()
            && this.guest.hears_it(cx)
            && let Some(leave) = this.leave.take()
        {
            leave(this.future.as_mut());
        }
        this.future.poll(cx)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.words.listening.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio_test::task::spawn;
    use tokio_test::{assert_pending, assert_ready, assert_ready_eq};

    use super::*;

    /// Takes some turns to end after it has been asked to.
    struct Slow(Option<u32>);

    impl Slow {
        fn leave(mut self: Pin<&mut Self>) {
            assert_eq!(self.0, None, "asked once");
            self.0 = Some(2);
        }
    }

    impl Future for Slow {
        type Output = &'static str;

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<&'static str> {
            match &mut self.0 {
                None => Poll::Pending,
                Some(0) => Poll::Ready("gone"),
                Some(turns) => {
                    *turns -= 1;
                    Poll::Pending
                }
            }
        }
    }

    #[test]
    fn whoever_stays_is_woken_leaves_in_its_own_time_and_is_waited_for() {
        let farewell = Farewell::new();
        let mut guest = spawn(farewell.guest().stay(Slow(None), Slow::leave));
        assert_pending!(guest.poll());
        let mut said = spawn(farewell.say());
        assert_pending!(said.poll());
        assert!(guest.is_woken());
        assert_pending!(guest.poll());
        assert_pending!(guest.poll());
        assert_ready_eq!(guest.poll(), "gone");
        drop(guest);
        assert_ready!(said.poll());
    }

    #[test]
    fn whoever_comes_late_hears_it_too() {
        let farewell = Farewell::new();
        let mut guest = spawn(farewell.guest().stay(Slow(None), Slow::leave));
        let mut said = spawn(farewell.say());
        assert_pending!(said.poll());
        for _ in 0..2 {
            assert_pending!(guest.poll());
        }
        assert_ready_eq!(guest.poll(), "gone");
    }

    #[test]
    fn nobody_is_waited_for_where_nobody_is() {
        let farewell = Farewell::new();
        let mut guest = spawn(farewell.guest().stay(Slow(None), Slow::leave));
        assert_pending!(guest.poll());
        drop(guest);
        assert!(farewell.words.listening.lock().is_empty());
        assert_ready!(spawn(farewell.say()).poll());
    }
}
