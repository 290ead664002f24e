//! Replies as Lua values, and Lua values as replies.

use mlua::{Error, Lua, LuaString, Result, Value};

use crate::redis::number;
use crate::redis::reply::Reply;

/// The names of the fields that make a table an error or a status.
pub(super) struct Fields {
    err: LuaString,
    ok: LuaString,
}

impl Fields {
    pub(super) fn new(lua: &Lua) -> Result<Self> {
        Ok(Self { err: lua.create_string("err")?, ok: lua.create_string("ok")? })
    }

    /// The Lua value of a reply: nothing is `false`.
    pub(super) fn to_lua(&self, lua: &Lua, reply: Reply) -> Result<Value> {
        Ok(match reply {
            Reply::Nil => Value::Boolean(false),
            Reply::Int(number) => Value::Number(number as f64),
            Reply::Bulk(text) => Value::String(lua.create_string(text)?),
            Reply::Array(items) => {
                let items = items.into_iter().map(|item| self.to_lua(lua, item));
                Value::Table(lua.create_sequence_from(items.collect::<Result<Vec<_>>>()?)?)
            }
            Reply::Status(text) => Self::single(lua, &self.ok, &text)?,
            Reply::Error(text) => Self::single(lua, &self.err, &text)?,
        })
    }

    fn single(lua: &Lua, field: &LuaString, text: &str) -> Result<Value> {
        let table = lua.create_table()?;
        table.raw_set(field, text)?;
        Ok(Value::Table(table))
    }

    /// The reply of a Lua value: numbers lose their fraction, and a table ends before its first `nil`.
    pub(super) fn to_reply(&self, value: &Value) -> Result<Reply> {
        Ok(match value {
            Value::Integer(number) => Reply::Int(*number),
            Value::Number(number) => Reply::Int(*number as i64),
            Value::String(text) => Reply::bulk(&*text.as_bytes()),
            Value::Boolean(true) => Reply::Int(1),
            Value::Table(table) => {
                let text = |field: &LuaString| table.raw_get::<Option<LuaString>>(field);
                if let Some(error) = text(&self.err)? {
                    Reply::Error(error.to_string_lossy().into())
                } else if let Some(status) = text(&self.ok)? {
                    Reply::Status(status.to_string_lossy().into())
                } else {
                    self.items(table)?
                }
            }
            _ => Reply::Nil,
        })
    }

    /// The reply of a table that is neither an error nor a status.
    pub(super) fn items(&self, table: &mlua::Table) -> Result<Reply> {
        let mut items = Vec::with_capacity(table.raw_len());
        for item in table.sequence_values::<Value>() {
            items.push(self.to_reply(&item?)?);
        }
        Ok(Reply::Array(items))
    }
}

/// The words of a command that a script calls, in one allocation.
#[derive(Default)]
pub(super) struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    pub(super) fn new(values: &mlua::MultiValue) -> Result<Self> {
        let mut words = Self { bytes: Vec::with_capacity(256), ends: Vec::with_capacity(values.len()) };
        for value in values {
            match value {
                Value::String(text) => words.bytes.extend_from_slice(&text.as_bytes()),
                Value::Integer(number) => number::write(&mut words.bytes, *number as f64),
                Value::Number(number) => number::write(&mut words.bytes, *number),
                _ => {
                    let text = "Lua redis lib command arguments must be strings or integers";
                    return Err(Error::runtime(text));
                }
            }
            words.ends.push(words.bytes.len());
        }
        Ok(words)
    }

    pub(super) fn slices(&self) -> Vec<&[u8]> {
        let mut start = 0;
        let slice = |end: &usize| &self.bytes[std::mem::replace(&mut start, *end)..*end];
        self.ends.iter().map(slice).collect()
    }
}
