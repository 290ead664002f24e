//! Reads trees into types by serde, and goes on after a mistake.
//!
//! serde gives up at the first error. So a table with an error in it is read again without the value that was wrong, until
//! all that is left is right: its type gets everything but the mistakes, and each mistake is a fault with the way to it.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::faults::Faults;
use super::node::{Node, Table};
use super::place::{At, Path, PathStep, snake_case};
use super::suggest::did_you_mean;

/// How keys are spelt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Notation {
    /// `on_failure`
    File,
    /// `onFailure`
    Json,
}

/// How many mistakes of one table are told.
const MOST: usize = 100;

/// Members that the admin API adds when it shows an entry, by the type that has them. A file has no such keys.
const SHOWN_ONLY: [(&str, &str); 5] = [
    ("PlanSpec", "name"),
    ("PlanSpec", "source"),
    ("RuleSpec", "source"),
    ("TenantSpec", "source"),
    ("TenantSpec", "apiKeyCount"),
];

/// What some keys take, in more words than their types have.
const TAKES: [(&str, &str); 7] = [
    ("capacity", "a whole number of tokens from 1 to 1000000000"),
    ("cost", "a whole number of tokens from 0 to 1000000000"),
    ("refill", "text: tokens per period, as in `1/s` or `100/min`"),
    ("key", "a list of texts: who pays, as in `[\"tenant\", \"ip\"]`"),
    ("plans", "a list of plan names, one of them, `\"tenant\"`, `\"unlimited\"` or `\"banned\"`"),
    ("also", "a list of texts: the ids of other rules"),
    ("api_keys", "a list of hashes: `sha256:` and 64 hexadecimal digits each"),
];

/// Reads one table. `None` if it is no table, or has too many mistakes.
pub(super) fn read<T: DeserializeOwned>(
    node: &Node<'_>,
    at: At<'_>,
    notation: Notation,
    faults: &mut Faults,
) -> Option<T> {
    reading(notation, &[], faults, |reading| reading.table(node, at))
}

/// Reads one table that two types describe together.
pub(super) fn read_both<A: DeserializeOwned, B: DeserializeOwned>(
    node: &Node<'_>,
    at: At<'_>,
    faults: &mut Faults,
) -> (Option<A>, Option<B>) {
    let keys = [keys_of::<A>(), keys_of::<B>()].concat();
    reading(Notation::File, &keys, faults, |reading| (reading.table(node, at), reading.table(node, at)))
}

fn reading<T>(
    notation: Notation,
    keys: &[&'static str],
    faults: &mut Faults,
    read: impl FnOnce(&Reading<'_>) -> T,
) -> T {
    let reading =
        Reading { notation, keys, faults: RefCell::new(std::mem::take(faults)), wrong: RefCell::default() };
    let read = read(&reading);
    *faults = reading.faults.into_inner();
    read
}

/// The keys that a type takes in a file, in the order of its fields.
pub(in crate::config) fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Asking<'a>(&'a Cell<&'static [&'static str]>);

    impl<'de> Deserializer<'de> for Asking<'_> {
        type Error = Error;

        fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
            Err(Error::Told)
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _name: &'static str,
            fields: &'static [&'static str],
            _visitor: V,
        ) -> Result<V::Value, Error> {
            self.0.set(fields);
            Err(Error::Told)
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let keys: Cell<&'static [&'static str]> = Cell::new(&[]);
    let _ = T::deserialize(Asking(&keys));
    keys.get()
}

/// A mistake while reading. `message` and `fix` as everywhere else: what is wrong, and what would be right.
pub(in crate::config) fn wrong<E: de::Error>(message: impl fmt::Display, fix: impl fmt::Display) -> E {
    E::custom(format_args!("{message}{BETWEEN}{fix}"))
}

/// Parts what is wrong from what would be right in the one text that serde hands on.
const BETWEEN: char = '\u{1f}';

/// One table on its way into its type.
struct Reading<'r> {
    notation: Notation,
    /// The keys of the table itself, if its type does not know all of them.
    keys: &'r [&'static str],
    faults: RefCell<Faults>,
    /// What is wrong, and is left out when the table is read again.
    wrong: RefCell<Vec<Path>>,
}

impl Reading<'_> {
    fn table<T: DeserializeOwned>(&self, node: &Node<'_>, at: At<'_>) -> Option<T> {
        let reader = Reader { node, at, reading: self, is_root: true };
        loop {
            let before = self.wrong.borrow().len();
            match T::deserialize(reader).map_err(|why| reader.tell(why)) {
                Ok(read) => return Some(read),
                Err(_) if before > MOST || self.is_wrong(&at) => return None,
                Err(_) => {}
            }
        }
    }

    fn is_wrong(&self, at: &At<'_>) -> bool {
        let wrong = self.wrong.borrow();
        !wrong.is_empty() && wrong.contains(&at.path())
    }

    fn add(&self, path: Path, message: String, fix: String) {
        self.faults.borrow_mut().add_path(path.clone(), message, fix);
        self.wrong.borrow_mut().push(path);
    }

    /// Whether this is how the field is spelt here.
    fn is_spelt(&self, of: &str, field: &str, key: &str) -> bool {
        match self.notation {
            Notation::Json => field == key,
            Notation::File if SHOWN_ONLY.contains(&(of, field)) => false,
            Notation::File => field == key || is_snake_case_of(field, key),
        }
    }

    /// Every key that the table takes.
    fn takes(&self, of: &str, fields: &[&str]) -> Vec<String> {
        let fields = fields.iter();
        match self.notation {
            Notation::Json => fields.map(|field| (*field).to_owned()).collect(),
            Notation::File => {
                let in_files = fields.filter(|field| !SHOWN_ONLY.contains(&(of, field)));
                in_files.map(|field| snake_case(field)).collect()
            }
        }
    }
}

fn is_snake_case_of(field: &str, key: &str) -> bool {
    let mut key = key.bytes();
    let mut letter_is_next = |letter: u8| {
        (!letter.is_ascii_uppercase() || key.next() == Some(b'_'))
            && key.next() == Some(letter.to_ascii_lowercase())
    };
    field.bytes().all(&mut letter_is_next) && key.next().is_none()
}

/// A value that is being read.
#[derive(Clone, Copy)]
struct Reader<'r> {
    node: &'r Node<'r>,
    at: At<'r>,
    reading: &'r Reading<'r>,
    is_root: bool,
}

impl Reader<'_> {
    /// Adds the error to the faults, unless that was done where it arose.
    fn tell(&self, error: Error) -> Error {
        let path = self.at.path();
        let (message, fix) = match error {
            Error::Told => return Error::Told,
            Error::Wrong { message, fix } => (message, fix),
            Error::Variant { word, known } => {
                (format!("`{}` cannot be `{word}`", path.name()), format!("this takes {}", one_of(known)))
            }
            Error::Type { wants } => {
                let wants = self.wants(&path, &wants);
                (format!("`{}` is {}", path.name(), self.found(&wants)), format!("this takes {wants}"))
            }
        };
        self.reading.add(path, message, fix);
        Error::Told
    }

    fn found(&self, wants: &str) -> String {
        match self.node {
            // A whole number in the place of another is only refused for its size.
            Node::Whole(number) if wants.starts_with("a whole number") => number.to_string(),
            Node::Table(_) if self.reading.notation == Notation::Json => "an object".to_owned(),
            other => other.kind().to_owned(),
        }
    }

    /// What serde's own types say that they take, in words that a reader of the configuration knows.
    fn wants(&self, path: &Path, wants: &str) -> String {
        let key = match path.steps.last() {
            Some(PathStep::Key(key)) => snake_case(key),
            _ => String::new(),
        };
        if let Some((_, takes)) = TAKES.iter().find(|(of, _)| *of == key) {
            return (*takes).to_owned();
        }
        let table = if self.reading.notation == Notation::Json { "an object" } else { "a table" };
        match wants {
            "a string" | "path string" => "text in quotes",
            "a boolean" => "`true` or `false`",
            "a sequence" => "a list",
            "u64" => "a whole number from 0",
            "f64" => "a number",
            "a map" => table,
            _ if wants.starts_with("struct ") => table,
            _ => wants,
        }
        .to_owned()
    }

    fn mismatch<'de, V: Visitor<'de>>(self, visitor: &V) -> Error {
        Error::Type { wants: (visitor as &dyn de::Expected).to_string() }
    }

    fn list<'de, V: Visitor<'de>>(self, items: &[Node<'_>], visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Items { list: self, items, next: 0 })
    }

    fn table<'de, V: Visitor<'de>>(self, known: Known, visitor: V) -> Result<V::Value, Error> {
        match self.node {
            Node::Table(table) => visitor.visit_map(Entries::new(self, table, known)),
            Node::Raw(text) => match Node::from_toml_value(text) {
                Some(Node::Table(table)) => visitor.visit_map(Entries::new(self, &table, known)),
                Some(Node::Flag(flag)) => visitor.visit_bool(flag),
                _ => Err(self.mismatch(&visitor)),
            },
            Node::Flag(flag) => visitor.visit_bool(*flag),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    /// Reads a part of this value, and tells of what is wrong with it.
    fn within<'de, S: DeserializeSeed<'de>>(
        &self,
        node: &Node<'_>,
        at: At<'_>,
        seed: S,
    ) -> Result<S::Value, Error> {
        let part = Reader { node, at, reading: self.reading, is_root: false };
        seed.deserialize(part).map_err(|why| part.tell(why))
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node {
            Node::Text(text) => visitor.visit_str(text),
            Node::Raw(text) => match listed(text) {
                Some(items) => self.list(&items, visitor),
                None => visitor.visit_str(text),
            },
            Node::Whole(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => Err(self.mismatch(&visitor)),
            },
            Node::Fraction(number) => visitor.visit_f64(*number),
            Node::Flag(flag) => visitor.visit_bool(*flag),
            Node::Null | Node::Date => Err(self.mismatch(&visitor)),
            Node::List(items) => self.list(items, visitor),
            Node::Table(table) => visitor.visit_map(Entries::new(self, table, None)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.text() {
            Some(text) => visitor.visit_str(text),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node {
            Node::Raw(text) => match text.trim().parse() {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => Err(self.mismatch(&visitor)),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node {
            Node::Whole(number) => visitor.visit_f64(*number as f64),
            Node::Raw(text) => match text.trim().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => Err(self.mismatch(&visitor)),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node {
            Node::Raw(text) => match text.trim().parse() {
                Ok(flag) => visitor.visit_bool(flag),
                Err(_) => Err(self.mismatch(&visitor)),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    /// A variable may hold a list in TOML, or texts with commas between them.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node {
            Node::Raw(text) => match listed(text) {
                Some(items) => self.list(&items, visitor),
                None if text.trim().is_empty() => self.list(&[], visitor),
                None => self.list(&[Node::Raw(text.trim().into())], visitor),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.table(None, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.table(Some((name, fields)), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.node.text() {
            Some(text) => visitor.visit_enum(text.into_deserializer()),
            None => Err(Error::Type { wants: "a string".to_owned() }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 u32 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// The list that a variable holds. `None` if it holds one text.
fn listed(text: &str) -> Option<Vec<Node<'_>>> {
    match Node::from_toml_value(text) {
        Some(Node::List(items)) => Some(items),
        _ if text.contains(',') => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(items.map(|item| Node::Raw(item.into())).collect())
        }
        _ => None,
    }
}

/// The entries of a table that its type knows, one after the other.
struct Entries<'r> {
    table: Reader<'r>,
    entries: std::slice::Iter<'r, (Cow<'r, str>, Node<'r>)>,
    known: Known,
    value: Option<(&'r str, &'r Node<'r>)>,
}

/// The name of a type and its fields. `None` if keys are names that the operator chose.
type Known = Option<(&'static str, &'static [&'static str])>;

impl<'r> Entries<'r> {
    fn new(table: Reader<'r>, entries: &'r Table<'r>, known: Known) -> Self {
        Self { table, entries: entries.iter(), known, value: None }
    }

    /// The field of this key, or the key itself if it is a name. `None` if the type has no such field.
    fn field(&self, key: &'r str) -> Option<&'r str> {
        let Some((of, fields)) = self.known else { return Some(key) };
        let field = fields.iter().find(|field| self.table.reading.is_spelt(of, field, key));
        if field.is_none() {
            self.tell_unknown(of, fields, key);
        }
        field.copied()
    }

    /// Tells of a key that the type does not know, once.
    fn tell_unknown(&self, of: &str, fields: &[&'static str], key: &str) {
        let Reader { at, reading, is_root, .. } = self.table;
        let keys = if is_root && !reading.keys.is_empty() { reading.keys } else { fields };
        let name = at.name(key);
        if keys.iter().any(|known| reading.is_spelt(of, known, key)) || reading.is_wrong(&name.spelling()) {
            return;
        }
        let takes = reading.takes(of, keys);
        let guess = did_you_mean(key, takes.iter().map(String::as_str));
        let message = format!("`{}` has no key `{key}`", at.path().name());
        reading.add(name.spelling().path(), message, format!("{guess}it takes {}", takes.join(", ")));
    }

    fn at<'a>(&'a self, field: &'a str) -> At<'a> {
        if self.known.is_some() { self.table.at.key(field) } else { self.table.at.name(field) }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        while let Some((key, node)) = self.entries.next() {
            let Some(field) = self.field(key) else { continue };
            if !matches!(node, Node::Null) && !self.table.reading.is_wrong(&self.at(field)) {
                self.value = Some((field, node));
                let field: StrDeserializer<'_, Error> = field.into_deserializer();
                return seed.deserialize(field).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (field, node) = self.value.take().ok_or(Error::Told)?;
        self.table.within(node, self.at(field), seed)
    }
}

/// The items of a list, one after the other.
struct Items<'r> {
    list: Reader<'r>,
    items: &'r [Node<'r>],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        while let Some(node) = self.items.get(self.next) {
            let at = self.list.at.item(self.next);
            self.next += 1;
            if !self.list.reading.is_wrong(&at) {
                return self.list.within(node, at, seed).map(Some);
            }
        }
        Ok(None)
    }
}

/// Why a value cannot be read into its type.
#[derive(Debug)]
pub(super) enum Error {
    /// It is among the faults.
    Told,
    /// It has another type than this.
    Type {
        wants: String,
    },
    /// It is none of these words.
    Variant {
        word: String,
        known: &'static [&'static str],
    },
    Wrong {
        message: String,
        fix: String,
    },
}

impl de::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        let text = text.to_string();
        let (message, fix) = text.rsplit_once(BETWEEN).unwrap_or((&text, "another value"));
        Self::Wrong { message: message.to_owned(), fix: fix.to_owned() }
    }

    fn invalid_type(_found: de::Unexpected<'_>, wants: &dyn de::Expected) -> Self {
        Self::Type { wants: wants.to_string() }
    }

    fn invalid_value(_found: de::Unexpected<'_>, wants: &dyn de::Expected) -> Self {
        Self::Type { wants: wants.to_string() }
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::Variant { word: word.to_owned(), known }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Error {}

/// `a`, `b` or `c`.
fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        only => only.join(""),
    }
}
