//! Whether something has already been said in this window, in a table that never grows.

/// Places in the table; a power of two.
const PLACES: usize = 8_192;

/// Remembers what was said. Two things that share a place forget each other, and are then said again.
#[derive(Debug)]
pub(crate) struct Recently {
    places: Box<[(u64, u64)]>,
}

impl Recently {
    pub(crate) fn new() -> Self {
        Self { places: vec![(0, u64::MAX); PLACES].into() }
    }

    /// Whether this is the first time in the window.
    pub(crate) fn is_first(&mut self, what: u64, window: u64) -> bool {
        let place = &mut self.places[what as usize & (PLACES - 1)];
        let first = *place != (what, window);
        *place = (what, window);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_said_once_in_each_window() {
        let mut recently = Recently::new();
        assert!(recently.is_first(5, 0));
        assert!(!recently.is_first(5, 0));
        assert!(recently.is_first(5, 1));
    }
}
