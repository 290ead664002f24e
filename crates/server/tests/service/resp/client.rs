//! A client that knows nothing of the server's own code: it sends bytes and reads replies.

use std::net::SocketAddr;

use spile_testkit::wait::PATIENCE;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// One connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).await.expect("the server reads");
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
        timeout(PATIENCE, self.read()).await.expect("it answers")
    }

    /// What was sent before the connection ended.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // One that is cut off has ended, too.
        let _all_or_reset = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("it ends");
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Both directions, for tests that read and write at once.
    pub(crate) fn split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        self.stream.into_inner().into_split()
    }

    async fn read(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.expect("replies begin with a line");
        let line = line.strip_suffix("\r\n").unwrap_or_else(|| panic!("the connection ended after {line:?}"));
        let (kind, rest) = line.split_at(1);
        let length = || rest.parse::<i64>().unwrap_or_else(|_| panic!("{line:?} has no length"));
        match kind {
            "$" if length() < 0 => "nil".to_owned(),
            "$" => {
                let mut text = vec![0; length() as usize + 2];
                self.stream.read_exact(&mut text).await.expect("all of it comes");
                text.truncate(text.len() - 2);
                String::from_utf8(text).expect("tests ask for text")
            }
            "*" | "%" => {
                let count = if kind == "%" { 2 * length() } else { length() };
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(Box::pin(self.read()).await);
                }
                let (open, close) = if kind == "%" { ('{', '}') } else { ('[', ']') };
                format!("{open}{}{close}", items.join(", "))
            }
            "_" => "null".to_owned(),
            "-" => line.to_owned(),
            "+" | ":" => rest.to_owned(),
            _ => panic!("{line:?} is no reply"),
        }
    }
}

/// The words as a client library sends them.
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}
