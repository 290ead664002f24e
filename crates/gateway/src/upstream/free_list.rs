//! A thread-local free list, for memory that is used again and again.
//!
//! The memory that was used last is still in the cache of the core. However many requests are in flight, most of the
//! work on each happens in a few buffers that are warm.

use std::cell::RefCell;
use std::thread::LocalKey;

/// The most items of one type that a thread keeps.
pub(crate) const MAX_FREE: usize = 16;

/// Unused items of one type. The one that was used last is used first.
pub(crate) struct FreeList<T>(RefCell<Vec<T>>);

impl<T> FreeList<T> {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// Takes an item, if the list has one.
    pub(crate) fn take(list: &'static LocalKey<Self>) -> Option<T> {
        list.try_with(|free| free.0.borrow_mut().pop()).ok().flatten()
    }

    /// Puts an item back. It is dropped if the list is full or the thread is ending.
    pub(crate) fn keep(list: &'static LocalKey<Self>, item: T) {
        let dropped = list.try_with(|free| {
            let mut free = free.0.borrow_mut();
            if free.len() == MAX_FREE {
                return Some(item);
            }
            free.push(item);
            None
        });
        drop(dropped);
    }

    #[cfg(test)]
    pub(crate) fn count(list: &'static LocalKey<Self>) -> usize {
        list.with(|free| free.0.borrow().len())
    }
}
