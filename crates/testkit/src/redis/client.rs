//! A small blocking client, by which fixtures control their servers.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use spile_resp::{Value, parse, write};

/// A frozen server must fail the test, not hang it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server's reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedisReply {
    /// The key or field does not exist.
    Nil,
    /// A whole number.
    Int(i64),
    /// A status, a string or an error within a list. Bytes that are not UTF-8 are replaced.
    Text(String),
    /// Several replies.
    List(Vec<RedisReply>),
}

impl RedisReply {
    /// The text of a text reply; empty for any other.
    pub fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    /// The number in an integer reply, or in a text that is one.
    ///
    /// # Panics
    /// If the reply holds no number.
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            Self::Text(text) => text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number")),
            other => panic!("{other:?} is not a number"),
        }
    }

    /// The members of a list; empty for any other reply.
    pub fn list(&self) -> &[RedisReply] {
        if let Self::List(members) = self { members } else { &[] }
    }
}

impl From<Value> for RedisReply {
    fn from(value: Value) -> Self {
        match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Int(number),
            Value::Text(bytes) => Self::Text(String::from_utf8_lossy(&bytes).into_owned()),
            Value::Error(text) => Self::Text(text),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Map(pairs) => {
                Self::List(pairs.into_iter().flat_map(|(key, value)| [key.into(), value.into()]).collect())
            }
        }
    }
}

/// Why a command got no reply.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// The server refused it.
    #[error("{0}")]
    Refused(String),
    /// The server could not be reached, or stopped answering.
    #[error("no reply: {0}")]
    Io(#[from] io::Error),
}

/// One connection to a server's Unix socket.
#[derive(Debug)]
pub struct RedisClient {
    stream: UnixStream,
}

impl RedisClient {
    pub(super) fn open(socket: &Path) -> Result<Self, ReplyError> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream })
    }

    /// The server's reply to a command, or the reason why it did not arrive.
    pub fn command(&mut self, words: &[&str]) -> Result<RedisReply, ReplyError> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&words).map(RedisReply::from)
    }

    /// The server's reply, as it came, to a command of any bytes.
    pub fn send(&mut self, words: &[&[u8]]) -> Result<Value, ReplyError> {
        let mut command = Vec::new();
        write::command(&mut command, words);
        self.stream.write_all(&command)?;
        let (mut bytes, mut chunk) = (Vec::new(), [0; 16 * 1024]);
        loop {
            match parse(&bytes).map_err(io::Error::other)? {
                Some((Value::Error(text), _)) => return Err(ReplyError::Refused(text)),
                Some((value, _)) => return Ok(value),
                None => match self.stream.read(&mut chunk) {
                    Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    Ok(read) => bytes.extend_from_slice(&chunk[..read]),
                    // A signal came.
                    Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                    Err(why) => return Err(why.into()),
                },
            }
        }
    }
}
