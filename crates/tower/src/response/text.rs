//! The text that header values are cut from.

use arrayvec::ArrayVec;
use bytes::Bytes;

/// Room that the values of most decisions fit into: it then takes one allocation to share them.
const IN_PLACE: usize = 160;

/// Text on its way to becoming [`Bytes`].
pub(super) enum Text {
    Short(ArrayVec<u8, IN_PLACE>),
    Long(Vec<u8>),
}

impl Text {
    pub(super) const fn new() -> Self {
        Self::Short(ArrayVec::new_const())
    }

    /// How long it is. A header's worth: far below what sixteen bits hold.
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
