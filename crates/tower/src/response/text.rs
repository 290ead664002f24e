//! The text that header values are slices of.

use arrayvec::ArrayVec;
use bytes::Bytes;

/// The values of most decisions fit into this many bytes. Sharing them then takes one allocation.
const IN_PLACE: usize = 160;

/// Text that becomes [`Bytes`].
pub(super) enum HeaderText {
    Short(ArrayVec<u8, IN_PLACE>),
    Long(Vec<u8>),
}

impl HeaderText {
    pub(super) const fn new() -> Self {
        Self::Short(ArrayVec::new_const())
    }

    /// The length. Headers are far shorter than sixteen bits can count.
    #[inline]
    pub(super) fn len(&self) -> u16 {
        match self {
            Self::Short(text) => text.len() as u16,
            Self::Long(text) => text.len() as u16,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, piece: &[u8]) {
        match self {
            Self::Short(text) => {
                if text.try_extend_from_slice(piece).is_err() {
                    *self = Self::Long([text, piece].concat());
                }
            }
            Self::Long(text) => text.extend_from_slice(piece),
        }
    }

    #[inline]
    pub(super) fn integer(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number).as_bytes());
    }

    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Self::Short(text) => Bytes::from_owner(text),
            Self::Long(text) => Bytes::from(text),
        }
    }
}
