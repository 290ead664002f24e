//! A tiny blocking client that fixtures steer their servers with. It shares no code with the store under test, so
//! a bug in one cannot hide a bug in the other.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A frozen server must fail the test that asks it, not hang it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// Nothing is there.
    Nil,
    /// A whole number.
    Int(i64),
    /// A status or a string; bytes that are no UTF-8 are replaced.
    Text(String),
    /// Several replies.
    List(Vec<Reply>),
}

impl Reply {
    /// The text of a text reply; empty for any other.
    pub fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    /// The number in an integer reply, or in a text that is one.
    ///
    /// # Panics
    /// Where the reply holds no number.
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            Self::Text(text) => text.parse().unwrap_or_else(|_| panic!("{text:?} is no number")),
            other => panic!("{other:?} is no number"),
        }
    }

    /// The members of a list; none for any other reply.
    pub fn list(&self) -> &[Reply] {
        if let Self::List(members) = self { members } else { &[] }
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
pub struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub(super) fn open(socket: &Path) -> Result<Self, ReplyError> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// What the server answers to a command, or why it does not.
    pub fn command(&mut self, words: &[&str]) -> Result<Reply, ReplyError> {
        self.stream.get_mut().write_all(&encoded(words))?;
        self.reply()
    }

    fn reply(&mut self) -> Result<Reply, ReplyError> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(&line))?;
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            "-" => Err(ReplyError::Refused(rest.to_owned())),
            ":" => Ok(Reply::Int(number(rest)?)),
            "$" => self.bulk(number(rest)?),
            "*" => self.members(number(rest)?),
            _ => Err(malformed(&line)),
        }
    }

    fn bulk(&mut self, length: i64) -> Result<Reply, ReplyError> {
        let Ok(length) = usize::try_from(length) else { return Ok(Reply::Nil) };
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn members(&mut self, count: i64) -> Result<Reply, ReplyError> {
        if count < 0 {
            return Ok(Reply::Nil);
        }
        (0..count).map(|_| self.reply()).collect::<Result<_, _>>().map(Reply::List)
    }

    fn line(&mut self) -> Result<String, ReplyError> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(line.trim_end().to_owned())
    }
}

fn encoded(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

fn number(text: &str) -> Result<i64, ReplyError> {
    text.parse().map_err(|_| malformed(text))
}

fn malformed(line: &str) -> ReplyError {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed reply {line:?}")).into()
}
