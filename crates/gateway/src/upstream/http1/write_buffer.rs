//! Memory that requests are written in.

use std::mem;
use std::ops::{Deref, DerefMut};

use crate::upstream::free_list::Spare;

/// What most headers fit into.
const USUAL_BYTES: usize = 1024;
/// Texts that have grown beyond this are not worth keeping.
const MAX_BYTES: usize = 16 * 1024;

thread_local! {
    static SPARE: Spare<Vec<u8>> = const { Spare::new() };
}

/// Bytes whose memory goes back to its thread when they are dropped. None has been taken by default.
#[derive(Debug, Default)]
pub(super) struct Text(Vec<u8>);

impl Text {
    pub(super) fn take() -> Self {
        Self(Spare::take(&SPARE).unwrap_or_else(|| Vec::with_capacity(USUAL_BYTES)))
    }
}

impl Deref for Text {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Text {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        let mut text = mem::take(&mut self.0);
        if (USUAL_BYTES..=MAX_BYTES).contains(&text.capacity()) {
            text.clear();
            Spare::keep(&SPARE, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::free_list::MAX_SPARE;

    fn text(bytes: usize) -> Text {
        let mut text = Text::take();
        text.resize(bytes, b'x');
        text
    }

    #[test]
    fn memory_is_used_again_and_empty() {
        let first = text(100);
        let address = first.as_ptr();
        drop(first);
        let second = Text::take();
        assert_eq!((second.as_ptr(), second.len()), (address, 0));
    }

    #[test]
    fn a_thread_keeps_a_few_of_usual_size_and_no_more() {
        let many: Vec<_> = (0..4 * MAX_SPARE).map(|_| text(10)).collect();
        drop((many, text(MAX_BYTES + 1), Text::default()));
        assert_eq!(Spare::count(&SPARE), MAX_SPARE);
    }
}
