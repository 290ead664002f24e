//! Memory that answers are read into.
//!
//! A buffer is taken when bytes may have arrived and given back once they are on their way to the client, mostly
//! within the same turn. An idle connection holds none.

use std::mem;

use bytes::Bytes;

use crate::spare::Spare;

/// What one read takes at most.
pub(super) const BYTES: usize = 128 * 1024;
/// Up to so many bytes are copied out, so that a short answer to a slow client does not keep a whole buffer.
const WORTH_COPYING: usize = 8 * 1024;

thread_local! {
    static SPARE: Spare<Box<[u8]>> = const { Spare::new() };
}

/// A buffer that goes back to its thread when it is dropped.
pub(super) struct Buffer(Box<[u8]>);

/// A buffer of which the first bytes are in use.
struct Filled {
    buffer: Buffer,
    bytes: usize,
}

impl Buffer {
    pub(super) fn take() -> Self {
        Self(Spare::take(&SPARE).unwrap_or_else(|| vec![0; BYTES].into_boxed_slice()))
    }

    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// The first bytes of the buffer, of which no more than these were asked for. A reader who asks for less than all
    /// wants little to be held.
    pub(super) fn into_bytes(self, bytes: usize, asked_for: usize) -> Bytes {
        if bytes <= WORTH_COPYING || asked_for < BYTES {
            return Bytes::copy_from_slice(&self.0[..bytes]);
        }
        Bytes::from_owner(Filled { buffer: self, bytes })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        Spare::keep(&SPARE, mem::take(&mut self.0));
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
    use crate::spare::MAX_SPARE;

    fn filled(bytes: usize) -> Bytes {
        let mut buffer = Buffer::take();
        buffer.space()[..bytes].fill(b'x');
        buffer.into_bytes(bytes, BYTES)
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
    fn a_thread_keeps_a_few_buffers_and_no_more() {
        let many: Vec<_> = (0..4 * MAX_SPARE).map(|_| filled(BYTES)).collect();
        drop(many);
        assert_eq!(spare(), MAX_SPARE);
    }
}
