//! Memory that a thread has used and will use again.
//!
//! Memory that was used last is what the thread's cache still holds. However many requests are under way, most of the
//! work on each is done in a few places that are still warm.

use std::cell::RefCell;
use std::thread::LocalKey;

/// Things of one kind that a thread keeps at most.
pub(crate) const MAX_SPARE: usize = 16;

/// Things of one kind that nobody uses at the moment; the one that was used last is the first to be used again.
pub(crate) struct Spare<T>(RefCell<Vec<T>>);

impl<T> Spare<T> {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// One of this thread's, if it has any.
    pub(crate) fn take(of_thread: &'static LocalKey<Self>) -> Option<T> {
        of_thread.try_with(|spare| spare.0.borrow_mut().pop()).ok().flatten()
    }

    /// Keeps the thing, unless the thread has enough of them or is about to end.
    pub(crate) fn keep(of_thread: &'static LocalKey<Self>, thing: T) {
        let dropped = of_thread.try_with(|spare| {
            let mut spare = spare.0.borrow_mut();
            if spare.len() == MAX_SPARE {
                return Some(thing);
            }
            spare.push(thing);
            None
        });
        drop(dropped);
    }

    #[cfg(test)]
    pub(crate) fn count(of_thread: &'static LocalKey<Self>) -> usize {
        of_thread.with(|spare| spare.0.borrow().len())
    }
}
