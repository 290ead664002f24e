//! Reads the cost out of a body while it passes.

use std::ops::Add;

use spile_core::Amount;

use super::events::EventReader;
use super::json::JsonScanner;
use super::pointer::JsonPointer;
use super::source::PresetPlaces;

/// Reads what an answer cost out of its body, piece by piece. Made by [`CostSource::reader`](super::CostSource::reader).
///
/// It looks at each piece once and holds none, so a body of any size takes the same memory: well below 64 KiB.
#[derive(Debug)]
pub struct CostReader {
    scanner: JsonScanner,
    /// `None` if the body is JSON by itself.
    events: Option<EventReader>,
}

/// The cost as an answer reported it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReportedCost {
    /// The answer was complete.
    Exact(Amount),
    /// The answer broke off after it had said this much. Counts in a stream only grow, so it cost no less.
    AtLeast(Amount),
    /// It said nothing that could be read.
    Unknown,
}

impl CostReader {
    pub(super) fn json(places: impl IntoIterator<Item = (usize, JsonPointer)>) -> Self {
        Self { scanner: JsonScanner::new(places), events: None }
    }

    pub(super) fn events(places: impl IntoIterator<Item = (usize, JsonPointer)>) -> Self {
        Self { scanner: JsonScanner::new(places), events: Some(EventReader::default()) }
    }

    pub(super) fn preset(places: &PresetPlaces, has_events: bool) -> Self {
        let places =
            places.iter().map(|(number, text)| (*number, text.parse().expect("a pointer of a preset")));
        if has_events { Self::events(places) } else { Self::json(places) }
    }

    /// Reads the next piece of the body.
    pub fn push(&mut self, piece: &[u8]) {
        match &mut self.events {
            None => self.scanner.push(piece),
            Some(events) => events.push(piece, &mut self.scanner),
        }
    }

    /// The cost that the body has reported until now.
    pub fn amount(&self) -> Option<Amount> {
        self.scanner.found().into_iter().flatten().reduce(Amount::add)
    }

    /// The cost that the body reported, if this was its end (`is_whole`) or it broke off here.
    pub fn report(&self, is_whole: bool) -> ReportedCost {
        match self.amount() {
            None => ReportedCost::Unknown,
            Some(tokens) if is_whole => ReportedCost::Exact(tokens),
            Some(tokens) => ReportedCost::AtLeast(tokens),
        }
    }
}

impl ReportedCost {
    /// The cost in the end of a request that was charged this at first. `None` if the charge stays as it is: an answer that broke off
    /// returns nothing.
    pub fn settles_at(self, charged: Amount) -> Option<Amount> {
        match self {
            Self::Exact(tokens) => Some(tokens),
            Self::AtLeast(tokens) => Some(tokens).filter(|tokens| *tokens > charged),
            Self::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_broke_off_costs_no_less_than_was_charged() {
        let [few, charged, many] = [20, 500, 600].map(Amount::from_tokens);
        assert_eq!(ReportedCost::Exact(few).settles_at(charged), Some(few));
        assert_eq!(ReportedCost::AtLeast(few).settles_at(charged), None);
        assert_eq!(ReportedCost::AtLeast(many).settles_at(charged), Some(many));
        assert_eq!(ReportedCost::Unknown.settles_at(charged), None);
    }
}
