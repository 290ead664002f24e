//! The entries of an argument, which are read from left to right.

use super::msgpack::Item;
use super::rate::PlainRate;
use super::wire::Spent;

/// The last moment that a double represents exactly.
pub(super) const LAST_US: i128 = 9_007_199_254_740_991;

/// A place among the entries.
#[derive(Clone, Copy)]
pub(super) struct Parts<'i, 'a> {
    items: &'i [Item<'a>],
    /// The index of the next entry.
    pub(super) at: usize,
}

impl<'i, 'a> Parts<'i, 'a> {
    pub(super) fn new(items: &'i [Item<'a>]) -> Self {
        Self { items, at: 0 }
    }

    /// Equal entries at another place.
    pub(super) fn from(self, at: usize) -> Self {
        Self { at, ..self }
    }

    pub(super) fn len(self) -> usize {
        self.items.len()
    }

    pub(super) fn int(&mut self) -> Result<i128, String> {
        match self.next()? {
            Item::Int(number) => Ok(number),
            other => Err(self.unexpected(other, "a whole number")),
        }
    }

    pub(super) fn within(&mut self, what: &str, least: i128, most: i128) -> Result<i128, String> {
        let number = self.int()?;
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        Err(format!("{what} {number} in entry {} is not within {least} to {most}", self.at))
    }

    /// A number of things in the argument.
    pub(super) fn count(&mut self) -> Result<usize, String> {
        let most = self.items.len() as i128;
        Ok(self.within("number", 0, most)? as usize)
    }

    /// An index, which is written as the place that Lua counts from one.
    pub(super) fn place(&mut self) -> Result<usize, String> {
        let most = self.items.len() as i128 + 1;
        Ok(self.within("place", 1, most)? as usize - 1)
    }

    pub(super) fn text(&mut self) -> Result<&'a [u8], String> {
        match self.next()? {
            Item::Text(text) => Ok(text),
            other => Err(self.unexpected(other, "a text")),
        }
    }

    pub(super) fn rate(&mut self) -> Result<PlainRate, String> {
        match self.next()? {
            Item::Double(rate) => {
                PlainRate::new(rate).ok_or_else(|| format!("{rate} in entry {} is not a rate", self.at))
            }
            other => Err(self.unexpected(other, "a double")),
        }
    }

    pub(super) fn spent(&mut self) -> Result<Spent, String> {
        match self.next()? {
            Item::Bool(true) => Ok(Spent::Now),
            Item::Bool(false) => Ok(Spent::Unknown),
            Item::Int(moment) if (0..=LAST_US).contains(&moment) => Ok(Spent::At(moment)),
            other => Err(self.unexpected(other, "a moment, true or false")),
        }
    }

    fn next(&mut self) -> Result<Item<'a>, String> {
        self.at += 1;
        self.items.get(self.at - 1).copied().ok_or_else(|| "argument has too few entries".to_owned())
    }

    fn unexpected(self, item: Item<'_>, expected: &str) -> String {
        format!("entry {} is {item:?} and not {expected}", self.at)
    }
}

/// A text of the wire, for names and messages.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
