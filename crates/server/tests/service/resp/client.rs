//! A client that sends bytes and reads replies.

use std::net::SocketAddr;

use spile_resp::{Value, parse, write};
use spile_testkit::wait::PATIENCE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes that have arrived and belong to the next replies.
    unread: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        Self { stream, unread: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    /// Asks with these words, and reads the answer.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> String {
        self.send(command(words)).await;
        self.reply().await
    }

    /// What `CL.THROTTLE` with these arguments answers.
    pub(crate) async fn throttle(&mut self, arguments: &str) -> String {
        let words: Vec<&str> = ["CL.THROTTLE"].into_iter().chain(arguments.split(' ')).collect();
        self.ask(&words).await
    }

    /// The next reply on one line: lists in brackets, an error with its minus.
    pub(crate) async fn reply(&mut self) -> String {
        shown(&timeout(PATIENCE, self.read()).await.expect("it answers"))
    }

    /// What was sent before the connection ended.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.unread);
        // One that is cut off has ended, too.
        let _all_or_reset = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("it ends");
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Waits until bytes have arrived, and reads none of them.
    pub(crate) async fn until_readable(&self) {
        timeout(PATIENCE, self.stream.readable()).await.expect("in time").expect("something arrives");
    }

    /// Both directions, for tests that read and write at once.
    pub(crate) fn split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        self.stream.into_split()
    }

    async fn read(&mut self) -> Value {
        loop {
            if let Some((value, length)) = parse(&self.unread).expect("the bytes are a reply") {
                self.unread.drain(..length);
                return value;
            }
            let read = self.stream.read_buf(&mut self.unread).await.expect("the connection stands");
            assert!(read > 0, "the connection ended after {}", self.unread.escape_ascii());
        }
    }
}

fn shown(value: &Value) -> String {
    let joined = |items: &mut dyn Iterator<Item = &Value>| items.map(shown).collect::<Vec<_>>().join(", ");
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => String::from_utf8(text.clone()).expect("tests ask for text"),
        Value::Error(text) => format!("-{text}"),
        Value::Array(items) => format!("[{}]", joined(&mut items.iter())),
        Value::Map(pairs) => {
            format!("{{{}}}", joined(&mut pairs.iter().flat_map(|(key, value)| [key, value])))
        }
    }
}

/// The words as a client library sends them.
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write::command(&mut bytes, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    bytes
}
