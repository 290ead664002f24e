//! Memory that answers are read into.
//!
//! A buffer is taken when bytes may have arrived and given back once they are on their way to the client, mostly
//! within the same turn. An idle connection holds none.

use std::mem;

use bytes::Bytes;

use crate::upstream::free_list::Spare;

/// What one read takes at most.
pub(super) const BYTES: usize = 128 * 1024;
/// What a reader gets who asks for no more than this.
const FEWER_BYTES: usize = 64 * 1024;
/// Up to so many bytes are copied out, so that a short answer to a slow client does not keep a whole buffer.
const WORTH_COPYING: usize = 8 * 1024;
/// The same for readers who ask for little, so that little is held for them.
const FEWER_WORTH_COPYING: usize = 16 * 1024;

thread_local! {
    static SPARE: Spare<Box<[u8]>> = const { Spare::new() };
    static FEWER: Spare<Box<[u8]>> = const { Spare::new() };
}

/// A buffer that goes back to its thread when it is dropped.
pub(super) struct Buffer(Box<[u8]>);

/// A buffer of which the first bytes are in use.
struct Filled {
    buffer: Buffer,
    bytes: usize,
}

impl Buffer {
    /// A buffer for a read of this many bytes at most.
    pub(super) fn take(at_most: usize) -> Self {
        let (spare, bytes) = if at_most > FEWER_BYTES { (&SPARE, BYTES) } else { (&FEWER, FEWER_BYTES) };
        Self(Spare::take(spare).unwrap_or_else(|| vec![0; bytes].into_boxed_slice()))
    }

    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// The first bytes of the buffer.
    pub(super) fn into_bytes(self, bytes: usize) -> Bytes {
        let worth_copying = if self.0.len() == BYTES { WORTH_COPYING } else { FEWER_WORTH_COPYING };
        if bytes <= worth_copying {
            return Bytes::copy_from_slice(&self.0[..bytes]);
        }
        Bytes::from_owner(Filled { buffer: self, bytes })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let spare = if self.0.len() == BYTES { &SPARE } else { &FEWER };
        Spare::keep(spare, mem::take(&mut self.0));
    }
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.0[..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::free_list::MAX_SPARE;

    fn filled(bytes: usize) -> Bytes {
        let mut buffer = Buffer::take(BYTES);
        buffer.space()[..bytes].fill(b'x');
        buffer.into_bytes(bytes)
    }

    fn spare() -> usize {
        Spare::count(&SPARE)
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
            let buffer = Buffer::take(FEWER_BYTES);
            assert_eq!(buffer.0.len(), FEWER_BYTES);
            buffer.into_bytes(bytes)
        };
        let (copied, held) = (read(FEWER_WORTH_COPYING), read(FEWER_BYTES));
        assert_eq!((copied.len(), held.len(), Spare::count(&FEWER)), (FEWER_WORTH_COPYING, FEWER_BYTES, 0));
        drop(held);
        assert_eq!((Spare::count(&FEWER), spare()), (1, 0));
    }

    #[test]
    fn a_thread_keeps_a_few_buffers_and_no_more() {
        let many: Vec<_> = (0..4 * MAX_SPARE).map(|_| filled(BYTES)).collect();
        drop(many);
        assert_eq!(spare(), MAX_SPARE);
    }
}
