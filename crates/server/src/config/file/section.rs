//! One table of the file on its way out: each key is taken once, and what is left over is unknown.

use super::fault::Faults;
use super::node::{Node, Table, parse_value};
use super::place::{Place, Spot};

/// What the whole file is called where something is wrong with it.
pub(super) const ROOT: &str = "the file";

const WHOLE: &str = "a whole number from 0";

/// A table being read.
pub(super) struct Section<'f> {
    name: String,
    place: Place,
    entries: Table,
    /// Every key that was asked for, there or not.
    known: Vec<&'static str>,
    taken: Vec<&'static str>,
    faults: &'f mut Faults,
}

impl<'f> Section<'f> {
    pub(super) fn new(name: impl Into<String>, spot: Spot<Node>, faults: &'f mut Faults) -> Self {
        let name = name.into();
        let entries = match spot.value {
            Node::Table(entries) => entries,
            other => {
                faults.add(&spot.place, format_args!("`{name}` is {}", other.kind()), "this takes a table");
                Table::new()
            }
        };
        Self { name, place: spot.place, entries, known: Vec::new(), taken: Vec::new(), faults }
    }

    /// Where the table itself was written.
    pub(super) const fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<Spot<String>> {
        let Spot { value, place } = self.take(key)?;
        match value {
            Node::Text(text) | Node::Raw(text) => Some(Spot::new(text, place)),
            other => self.mismatch(key, &other, &place, "text in quotes"),
        }
    }

    pub(super) fn whole(&mut self, key: &'static str) -> Option<Spot<u64>> {
        let Spot { value, place } = self.take(key)?;
        let number = match &value {
            Node::Whole(number) => u64::try_from(*number).ok(),
            Node::Raw(text) => text.trim().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => Some(Spot::new(number, place)),
            None => self.mismatch(key, &value, &place, WHOLE),
        }
    }

    /// A number, whole or not.
    pub(super) fn number(&mut self, key: &'static str) -> Option<Spot<f64>> {
        let Spot { value, place } = self.take(key)?;
        let number = match &value {
            Node::Whole(number) => Some(*number as f64),
            Node::Fraction(number) => Some(*number),
            Node::Raw(text) => text.trim().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => Some(Spot::new(number, place)),
            None => self.mismatch(key, &value, &place, "a number"),
        }
    }

    /// A number of bytes, in plain or with a unit.
    pub(super) fn size(&mut self, key: &'static str) -> Option<Spot<String>> {
        let Spot { value, place } = self.take(key)?;
        match value {
            Node::Whole(number) => Some(Spot::new(number.to_string(), place)),
            Node::Text(text) | Node::Raw(text) => Some(Spot::new(text, place)),
            other => self.mismatch(key, &other, &place, "a size, as in `64MiB`"),
        }
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Option<Spot<bool>> {
        let Spot { value, place } = self.take(key)?;
        let flag = match &value {
            Node::Flag(flag) => Some(*flag),
            Node::Raw(text) => text.trim().parse().ok(),
            _ => None,
        };
        match flag {
            Some(flag) => Some(Spot::new(flag, place)),
            None => self.mismatch(key, &value, &place, "`true` or `false`"),
        }
    }

    /// A list of texts; in the environment also separated by commas.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Spot<Vec<Spot<String>>>> {
        let Spot { value, place } = self.take(key)?;
        let items = match value {
            Node::List(items) => items,
            Node::Raw(text) => raw_list(&text, &place),
            other => return self.mismatch(key, &other, &place, "a list of texts"),
        };
        let texts = items.into_iter().filter_map(|Spot { value, place }| match value {
            Node::Text(text) | Node::Raw(text) => Some(Spot::new(text, place)),
            other => self.mismatch(key, &other, &place, "text in quotes"),
        });
        Some(Spot::new(texts.collect(), place))
    }

    /// One text or a list of them.
    pub(super) fn text_or_texts(&mut self, key: &'static str) -> Option<Spot<TextOrTexts>> {
        let at = self.entries.iter().position(|(name, _)| name.value == key);
        if at.is_some_and(|at| matches!(self.entries[at].1.value, Node::Text(_))) {
            return self.text(key).map(|Spot { value, place }| Spot::new(TextOrTexts::Text(value), place));
        }
        self.texts(key).map(|Spot { value, place }| Spot::new(TextOrTexts::Texts(value), place))
    }

    /// A table within this one.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Section<'_>> {
        let spot = self.take(key)?;
        let name = self.path_of(key);
        Some(Section::new(name, structured(spot), self.faults))
    }

    /// A table within this one, or `true` for one that says nothing and `false` for none.
    pub(super) fn table_or_flag(&mut self, key: &'static str) -> Option<Section<'_>> {
        let at = self.entries.iter().position(|(name, _)| name.value == key);
        let Some(at) =
            at.filter(|&at| !matches!(structured(self.entries[at].1.clone()).value, Node::Table(_)))
        else {
            return self.table(key);
        };
        let place = self.entries[at].1.place.clone();
        let wanted = self.flag(key).is_some_and(|flag| flag.value);
        let empty = Spot::new(Node::Table(Table::new()), place);
        wanted.then(|| Section::new(format!("{}.{key}", self.name), empty, self.faults))
    }

    /// A table of texts within this one, whose keys are names that somebody gave.
    pub(super) fn named_texts(&mut self, key: &'static str) -> Vec<(Spot<String>, Spot<String>)> {
        let entries = self.named(key).unwrap_or_default();
        let texts = entries.into_iter().filter_map(|(name, Spot { value, place })| match value {
            Node::Text(text) | Node::Raw(text) => Some((name, Spot::new(text, place))),
            other => {
                let message = format!("`{}.{key}.{}` is {}", self.name, name.value, other.kind());
                self.faults.add(&place, message, "this takes text in quotes");
                None
            }
        });
        texts.collect()
    }

    /// A list of tables within this one.
    pub(super) fn tables(&mut self, key: &'static str) -> Option<Vec<Spot<Node>>> {
        let Spot { value, place } = structured(self.take(key)?);
        match value {
            Node::List(items) => Some(items),
            other => self.mismatch(key, &other, &place, "a list of tables"),
        }
    }

    /// A table within this one whose keys are names that somebody gave.
    pub(super) fn named(&mut self, key: &'static str) -> Option<Table> {
        let Spot { value, place } = structured(self.take(key)?);
        match value {
            Node::Table(entries) => Some(entries),
            other => self.mismatch(key, &other, &place, "a table"),
        }
    }

    /// The value, or a fault where it is missing.
    pub(super) fn required<T>(&mut self, key: &'static str, value: Option<T>) -> Option<T> {
        // A key of the wrong type has been faulted already: it was there.
        let missing = value.is_none() && !self.taken.contains(&key);
        if missing {
            let message = format!("`{}` has no `{key}`", self.name);
            self.faults.add(&self.place.member(key), message, format_args!("add `{key} = …`"));
        }
        value
    }

    pub(super) fn faults(&mut self) -> &mut Faults {
        self.faults
    }

    /// Faults every key that nobody took.
    pub(super) fn end(self) {
        for (key, _) in &self.entries {
            let takes = format!("it takes {}", self.known.join(", "));
            self.faults.add(&key.place, format_args!("`{}` has no key `{}`", self.name, key.value), takes);
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.name == ROOT { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn take(&mut self, key: &'static str) -> Option<Spot<Node>> {
        self.known.push(key);
        let at = self.entries.iter().position(|(name, _)| name.value == key)?;
        self.taken.push(key);
        Some(self.entries.remove(at).1)
    }

    fn mismatch<T>(&mut self, key: &str, found: &Node, place: &Place, wanted: &str) -> Option<T> {
        let found = match found {
            // A whole number is only ever refused for its size.
            Node::Whole(number) if wanted == WHOLE => number.to_string(),
            other => other.kind().to_owned(),
        };
        self.faults.add(
            place,
            format_args!("`{}` is {found}", self.path_of(key)),
            format_args!("this takes {wanted}"),
        );
        None
    }
}

/// What may be written as one text or as a list.
#[derive(Clone, Debug)]
pub(crate) enum TextOrTexts {
    Text(String),
    Texts(Vec<Spot<String>>),
}

/// A value from the environment that stands for a list or a table, read as TOML.
fn structured(spot: Spot<Node>) -> Spot<Node> {
    match &spot.value {
        Node::Raw(text) => match parse_value(text, &spot.place) {
            Some(node) => Spot::new(node, spot.place),
            None => spot,
        },
        _ => spot,
    }
}

fn raw_list(text: &str, place: &Place) -> Vec<Spot<Node>> {
    if let Some(Node::List(items)) = parse_value(text, place) {
        return items;
    }
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(|item| Spot::new(Node::Raw(item.to_owned()), place.clone())).collect()
}
