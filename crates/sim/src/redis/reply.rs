//! Replies of commands, before a connection or a script sees them.

use std::borrow::Cow;

use spile_resp::Value;

/// A reply. Scripts see a status as a table and a bulk string as a string, so that the two differ here.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Nil,
    Int(i64),
    Status(Cow<'static, str>),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Error(Cow<'static, str>),
}

/// The text of an error reply, which begins with its code.
pub(super) type ErrorText = Cow<'static, str>;

/// A reply, or the text of an error reply.
pub(super) type CommandResult = Result<Reply, ErrorText>;

pub(super) const OK: Reply = Reply::Status(Cow::Borrowed("OK"));
pub(super) const SYNTAX: ErrorText = Cow::Borrowed("ERR syntax error");
pub(super) const NOT_AN_INTEGER: ErrorText = Cow::Borrowed("ERR value is not an integer or out of range");

impl Reply {
    pub(super) fn bulk(text: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(text.into())
    }

    pub(super) fn count(count: usize) -> Self {
        Self::Int(count.cast_signed() as i64)
    }

    pub(super) fn optional_bulk(text: Option<&[u8]>) -> Self {
        text.map_or(Self::Nil, Self::bulk)
    }
}

impl From<CommandResult> for Reply {
    fn from(result: CommandResult) -> Self {
        result.unwrap_or_else(Self::Error)
    }
}

impl From<Reply> for Value {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Nil => Self::Nil,
            Reply::Int(number) => Self::Int(number),
            Reply::Status(text) => Self::Text(text.into_owned().into_bytes()),
            Reply::Bulk(text) => Self::Text(text),
            Reply::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            Reply::Error(text) => Self::Error(text.into_owned()),
        }
    }
}
