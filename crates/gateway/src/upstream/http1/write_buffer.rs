//! Recycled memory for writing requests.

use std::mem;
use std::ops::{Deref, DerefMut};

use crate::upstream::free_list::FreeList;

/// Enough for most headers.
const USUAL_BYTES: usize = 1024;
/// Larger buffers are not kept.
const MAX_BYTES: usize = 16 * 1024;

thread_local! {
    static FREE: FreeList<Vec<u8>> = const { FreeList::new() };
}

/// A buffer whose memory goes back to the free list of its thread when dropped. The default has no memory.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer(Vec<u8>);

impl WriteBuffer {
    pub(super) fn take() -> Self {
        Self(FreeList::take(&FREE).unwrap_or_else(|| Vec::with_capacity(USUAL_BYTES)))
    }
}

impl Deref for WriteBuffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for WriteBuffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        let mut text = mem::take(&mut self.0);
        if (USUAL_BYTES..=MAX_BYTES).contains(&text.capacity()) {
            text.clear();
            FreeList::keep(&FREE, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::free_list::MAX_FREE;

    fn text(bytes: usize) -> WriteBuffer {
        let mut text = WriteBuffer::take();
        text.resize(bytes, b'x');
        text
    }

    #[test]
    fn memory_is_used_again_and_empty() {
        let first = text(100);
        let address = first.as_ptr();
        drop(first);
        let second = WriteBuffer::take();
        assert_eq!((second.as_ptr(), second.len()), (address, 0));
    }

    #[test]
    fn a_thread_keeps_a_few_of_usual_size_and_no_more() {
        let many: Vec<_> = (0..4 * MAX_FREE).map(|_| text(10)).collect();
        drop((many, text(MAX_BYTES + 1), WriteBuffer::default()));
        assert_eq!(FreeList::count(&FREE), MAX_FREE);
    }
}
