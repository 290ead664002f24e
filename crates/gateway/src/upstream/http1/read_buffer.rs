//! Recycled memory for reading responses.
//!
//! A buffer is taken when bytes may have arrived and returned once they have been passed to the client, mostly in the
//! same poll. An idle connection holds none.

use std::mem;

use bytes::Bytes;

use crate::upstream::free_list::FreeList;

/// The most bytes of one read.
pub(super) const BYTES: usize = 128 * 1024;
/// The size of buffers for readers that limit their reads to this.
const SMALL_BYTES: usize = 64 * 1024;
/// This many bytes or fewer are copied out, so that a short response to a slow client does not hold a whole buffer.
const WORTH_COPYING: usize = 8 * 1024;
/// The threshold for small buffers.
const SMALL_WORTH_COPYING: usize = 16 * 1024;

thread_local! {
    static FREE: FreeList<Box<[u8]>> = const { FreeList::new() };
    static FREE_SMALL: FreeList<Box<[u8]>> = const { FreeList::new() };
}

/// A buffer that goes back to the free list of its thread when dropped.
pub(super) struct ReadBuffer(Box<[u8]>);

/// A buffer whose first bytes are in use.
struct FilledBuffer {
    buffer: ReadBuffer,
    bytes: usize,
}

impl ReadBuffer {
    /// A buffer for a read of at most this many bytes.
    pub(super) fn take(at_most: usize) -> Self {
        let (spare, bytes) = if at_most > SMALL_BYTES { (&FREE, BYTES) } else { (&FREE_SMALL, SMALL_BYTES) };
        Self(FreeList::take(spare).unwrap_or_else(|| vec![0; bytes].into_boxed_slice()))
    }

    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// The first bytes of the buffer.
    pub(super) fn into_bytes(self, bytes: usize) -> Bytes {
        let worth_copying = if self.0.len() == BYTES { WORTH_COPYING } else { SMALL_WORTH_COPYING };
        if bytes <= worth_copying {
            return Bytes::copy_from_slice(&self.0[..bytes]);
        }
        Bytes::from_owner(FilledBuffer { buffer: self, bytes })
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        let spare = if self.0.len() == BYTES { &FREE } else { &FREE_SMALL };
        FreeList::keep(spare, mem::take(&mut self.0));
    }
}

impl AsRef<[u8]> for FilledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.0[..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::free_list::MAX_FREE;

    fn filled(bytes: usize) -> Bytes {
        let mut buffer = ReadBuffer::take(BYTES);
        buffer.space()[..bytes].fill(b'x');
        buffer.into_bytes(bytes)
    }

    fn spare() -> usize {
        FreeList::count(&FREE)
    }

    #[test]
    fn a_buffer_is_used_again_once_its_bytes_are_gone() {
        let bytes = filled(BYTES);
        let address = bytes.as_ptr();
        assert_eq!((bytes.len(), spare()), (BYTES, 0));
        drop(bytes);
        assert_eq!(filled(BYTES).as_ptr(), address);
    }

    #[test]
    fn a_few_bytes_do_not_keep_a_whole_buffer() {
        let bytes = filled(100);
        assert_eq!((bytes.len(), spare()), (100, 1));
    }

    #[test]
    fn who_asks_for_little_holds_little() {
        let read = |bytes| {
            let buffer = ReadBuffer::take(SMALL_BYTES);
            assert_eq!(buffer.0.len(), SMALL_BYTES);
            buffer.into_bytes(bytes)
        };
        let (copied, held) = (read(SMALL_WORTH_COPYING), read(SMALL_BYTES));
        assert_eq!(
            (copied.len(), held.len(), FreeList::count(&FREE_SMALL)),
            (SMALL_WORTH_COPYING, SMALL_BYTES, 0)
        );
        drop(held);
        assert_eq!((FreeList::count(&FREE_SMALL), spare()), (1, 0));
    }

    #[test]
    fn a_thread_keeps_a_few_buffers_and_no_more() {
        let many: Vec<_> = (0..4 * MAX_FREE).map(|_| filled(BYTES)).collect();
        drop(many);
        assert_eq!(spare(), MAX_FREE);
    }
}
