//! Writes serde types as TOML: keys in snake case in the order of the fields, and each value on one line.

use std::fmt::{self, Write};

use serde::ser::{Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use super::source::snake_case;

/// Writes the members of a struct, one `key = value` per line. Members that are `None` are left out.
pub(super) fn members(value: &impl Serialize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value.serialize(Inline).map_err(|Unwritable| fmt::Error)? {
        Value::Table(members) => {
            members.into_iter().try_for_each(|(key, value)| writeln!(f, "{key} = {value}"))
        }
        Value::None | Value::Other(_) => Err(fmt::Error),
    }
}

/// Writes a text in quotation marks. Rust's own `{:?}` writes escapes that TOML does not know.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Control characters, all below U+00A0. TOML takes some of them as they are, and this form of all.
            _ if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// A value as it is written on one line.
enum Value {
    /// It is left out.
    None,
    Table(Vec<(String, String)>),
    Other(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Other(text) => f.write_str(text),
            Self::Table(members) if members.is_empty() => f.write_str("{}"),
            Self::Table(members) => {
                let members: Vec<String> =
                    members.iter().map(|(key, value)| format!("{key} = {value}")).collect();
                write!(f, "{{ {} }}", members.join(", "))
            }
        }
    }
}

/// Something that TOML has no words for. No setting is of such a type.
#[derive(Debug, thiserror::Error)]
#[error("this cannot be written as TOML")]
struct Unwritable;

impl serde::ser::Error for Unwritable {
    fn custom<T: fmt::Display>(_why: T) -> Self {
        Self
    }
}

struct Inline;

type Written = Result<Value, Unwritable>;

macro_rules! plainly {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, value: $type) -> Written {
            Ok(Value::Other(value.to_string()))
        }
    )*};
}

impl Serializer for Inline {
    type Ok = Value;
    type Error = Unwritable;
    type SerializeSeq = List;
    type SerializeTuple = Impossible<Value, Unwritable>;
    type SerializeTupleStruct = Impossible<Value, Unwritable>;
    type SerializeTupleVariant = Impossible<Value, Unwritable>;
    type SerializeMap = Members;
    type SerializeStruct = Members;
    type SerializeStructVariant = Impossible<Value, Unwritable>;

    plainly! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    }

    fn serialize_f32(self, value: f32) -> Written {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Written {
        Ok(Value::Other(format!("{value:?}")))
    }

    fn serialize_char(self, value: char) -> Written {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Written {
        Ok(Value::Other(quoted(value)))
    }

    fn serialize_bytes(self, _value: &[u8]) -> Written {
        Err(Unwritable)
    }

    fn serialize_none(self) -> Written {
        Ok(Value::None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        Ok(Value::None)
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Written {
        Ok(Value::None)
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Written {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Written {
        Err(Unwritable)
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<List, Unwritable> {
        Ok(List::default())
    }

    fn serialize_tuple(self, _length: usize) -> Result<Self::SerializeTuple, Unwritable> {
        Err(Unwritable)
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleStruct, Unwritable> {
        Err(Unwritable)
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleVariant, Unwritable> {
        Err(Unwritable)
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Members, Unwritable> {
        Ok(Members::default())
    }

    fn serialize_struct(self, _name: &'static str, _length: usize) -> Result<Members, Unwritable> {
        Ok(Members::default())
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeStructVariant, Unwritable> {
        Err(Unwritable)
    }
}

/// A list on its way: texts and numbers on one line, and each table on a line of its own.
#[derive(Default)]
struct List {
    items: Vec<String>,
    has_tables: bool,
}

impl SerializeSeq for List {
    type Ok = Value;
    type Error = Unwritable;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        let value = value.serialize(Inline)?;
        self.has_tables |= matches!(value, Value::Table(_));
        self.items.push(value.to_string());
        Ok(())
    }

    fn end(self) -> Written {
        Ok(Value::Other(if self.has_tables {
            format!("[\n  {},\n]", self.items.join(",\n  "))
        } else {
            format!("[{}]", self.items.join(", "))
        }))
    }
}

/// A table on its way.
#[derive(Default)]
struct Members {
    members: Vec<(String, String)>,
    key: String,
}

impl Members {
    fn add<T: Serialize + ?Sized>(&mut self, key: String, value: &T) -> Result<(), Unwritable> {
        match value.serialize(Inline)? {
            Value::None => {}
            value => self.members.push((key, value.to_string())),
        }
        Ok(())
    }
}

impl SerializeStruct for Members {
    type Ok = Value;
    type Error = Unwritable;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Unwritable> {
        self.add(snake_case(key), value)
    }

    fn end(self) -> Written {
        Ok(Value::Table(self.members))
    }
}

/// Keys are names that the operator chose, and are written in quotes.
impl SerializeMap for Members {
    type Ok = Value;
    type Error = Unwritable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unwritable> {
        self.key = key.serialize(Inline)?.to_string();
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        let key = std::mem::take(&mut self.key);
        self.add(key, value)
    }

    fn end(self) -> Written {
        Ok(Value::Table(self.members))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Example {
        some_texts: Vec<String>,
        by_name: BTreeMap<String, f64>,
        tables: Vec<BTreeMap<String, bool>>,
        nothing: Option<u8>,
    }

    impl fmt::Display for Example {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            members(self, f)
        }
    }

    proptest! {
        #[test]
        fn every_text_and_name_reads_back_as_it_was(
            texts in prop::collection::vec(any::<String>(), 0..4),
            name in any::<String>(),
            number in -1e9..1e9,
        ) {
            let example = Example {
                some_texts: texts.clone(),
                by_name: [(name.clone(), number)].into(),
                tables: vec![[(name.clone(), true)].into(); 2],
                nothing: None,
            };
            let read: toml::Table = example.to_string().parse().expect("it is TOML");
            let some_texts = read["some_texts"].as_array().expect("a list");
            prop_assert_eq!(some_texts.iter().map(|text| text.as_str().unwrap_or_default()).collect::<Vec<_>>(), texts);
            prop_assert_eq!(read["by_name"][&name].as_float(), Some(number));
            prop_assert_eq!(read["tables"][1][&name].as_bool(), Some(true));
            prop_assert_eq!(read.len(), 3);
        }
    }

    #[test]
    fn every_character_reads_back_as_it_was() {
        let all: String = ('\0'..=char::MAX).collect();
        let read: toml::Table = format!("x = {}", quoted(&all)).parse().expect("it is TOML");
        assert!(read["x"].as_str() == Some(&all));
    }
}
