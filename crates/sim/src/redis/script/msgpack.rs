//! `cmsgpack.unpack`: `MessagePack` as Lua values.

use mlua::{Error, Lua, MultiValue, Result, Value};

/// Decodes all values of a text. Whole numbers become doubles, as all numbers of Lua 5.1 are.
pub(super) fn unpack(lua: &Lua, text: &[u8]) -> Result<MultiValue> {
    let mut reader = Reader { lua, rest: text };
    let mut values = MultiValue::with_capacity(1);
    while !reader.rest.is_empty() {
        values.push_back(reader.value()?);
    }
    Ok(values)
}

struct Reader<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Result<Value> {
        let [kind] = self.bytes()?;
        Ok(match kind {
            0x00..=0x7f => Value::Number(kind.into()),
            0x80..=0x8f => self.map((kind & 0x0f).into())?,
            0x90..=0x9f => self.array((kind & 0x0f).into())?,
            0xa0..=0xbf => self.text((kind & 0x1f).into())?,
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xc4 | 0xd9 => self.sized(1, Self::text)?,
            0xc5 | 0xda => self.sized(2, Self::text)?,
            0xc6 | 0xdb => self.sized(4, Self::text)?,
            0xca => Value::Number(f32::from_be_bytes(self.bytes()?).into()),
            0xcb => Value::Number(f64::from_be_bytes(self.bytes()?)),
            0xcc => Value::Number(u8::from_be_bytes(self.bytes()?).into()),
            0xcd => Value::Number(u16::from_be_bytes(self.bytes()?).into()),
            0xce => Value::Number(u32::from_be_bytes(self.bytes()?).into()),
            0xcf => Value::Number(u64::from_be_bytes(self.bytes()?) as f64),
            0xd0 => Value::Number(i8::from_be_bytes(self.bytes()?).into()),
            0xd1 => Value::Number(i16::from_be_bytes(self.bytes()?).into()),
            0xd2 => Value::Number(i32::from_be_bytes(self.bytes()?).into()),
            0xd3 => Value::Number(i64::from_be_bytes(self.bytes()?) as f64),
            0xdc => self.sized(2, Self::array)?,
            0xdd => self.sized(4, Self::array)?,
            0xde => self.sized(2, Self::map)?,
            0xdf => self.sized(4, Self::map)?,
            0xe0..=0xff => Value::Number(kind.cast_signed().into()),
            0xc1 | 0xc7..=0xc9 | 0xd4..=0xd8 => {
                return Err(Error::runtime("Bad data format in input."));
            }
        })
    }

    /// Reads a length of `width` bytes, and what has that length.
    fn sized(&mut self, width: usize, read: impl FnOnce(&mut Self, usize) -> Result<Value>) -> Result<Value> {
        let length = self.take(width)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        read(self, length)
    }

    fn array(&mut self, length: usize) -> Result<Value> {
        // The length comes from the caller: memory is reserved only for items that the text can hold.
        let mut items = Vec::with_capacity(length.min(self.rest.len()));
        for _ in 0..length {
            items.push(self.value()?);
        }
        self.lua.create_sequence_from(items).map(Value::Table)
    }

    fn map(&mut self, length: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let (key, value) = (self.value()?, self.value()?);
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }

    fn text(&mut self, length: usize) -> Result<Value> {
        self.lua.create_string(self.take(length)?).map(Value::String)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(missing)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(missing)?;
        self.rest = rest;
        Ok(bytes)
    }
}

fn missing() -> Error {
    Error::runtime("Missing bytes in input.")
}
