//! One page of the registry, as `read.lua` returns it.

use spile_redis::Value;

use super::mirror::{Mirror, Version};

/// The next step after a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NextPage {
    /// There are no more pages.
    Done,
    /// The next page.
    More,
    /// The reader's version is not part of this history: it starts over.
    Lost,
}

/// A page.
#[derive(Debug)]
pub(super) struct Page {
    /// The latest version there is.
    pub(super) head: Version,
    pub(super) then: NextPage,
    /// Where the next page continues.
    pub(super) at: Version,
    /// How many documents there are.
    pub(super) documents: usize,
    /// How many documents there are, or names in their order, whichever are fewer.
    pub(super) count: usize,
    items: Vec<(String, Option<Vec<u8>>)>,
}

impl Page {
    /// `None` if the reply is not one of `read.lua`.
    pub(super) fn read(reply: Value) -> Option<Self> {
        let Value::Array(parts) = reply else { return None };
        let mut parts = parts.into_iter();
        let mut text = || parts.next().as_ref().and_then(Value::as_str).map(ToOwned::to_owned);
        let head = Version { number: text()?.parse().ok()?, stamp: text()? };
        let then = match text()?.as_str() {
            "done" => NextPage::Done,
            "more" => NextPage::More,
            "lost" => NextPage::Lost,
            _ => return None,
        };
        let at = Version { number: text()?.parse().ok()?, stamp: text()? };
        let (documents, count) = (text()?.parse().ok()?, text()?.parse().ok()?);
        let mut items = Vec::new();
        while let Some(name) = parts.next() {
            let document = match parts.next()? {
                Value::Text(document) => Some(document),
                _ => None,
            };
            // A name that is not UTF-8 is shown lossily, and is then not the name of an entry.
            let name = match name {
                Value::Text(name) => String::from_utf8_lossy(&name).into_owned(),
                _ => return None,
            };
            items.push((name, document));
        }
        Some(Self { head, then, at, documents, count, items })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Records its content in the mirror.
    pub(super) fn note_in(&self, mirror: &mut Mirror) {
        for (name, document) in &self.items {
            mirror.note(name, document.as_deref());
        }
    }
}
