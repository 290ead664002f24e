//! Raw bytes on sockets, for messages that correct clients and servers would not send.

use std::net::SocketAddr;
use std::time::Duration;

use spile_gateway::Upstream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// How long anything may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// The output of the future. Panics if it takes longer than any healthy machine needs.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited too long for {what}"))
}

/// Polls until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    in_time(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Sends these bytes, and returns all bytes that come back until the other side closes.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a listening gateway");
    // The gateway may close the connection before it has read everything.
    let _sent = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ended = in_time("the gateway to hang up", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads up to this text, and returns all of it.
pub(crate) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    in_time(end, async {
        while !text.ends_with(end) {
            text.push(char::from(stream.read_u8().await.expect("more bytes")));
        }
    })
    .await;
    text
}

/// An upstream that gets the raw connection.
pub(crate) struct RawBackend {
    pub(crate) address: SocketAddr,
}

impl RawBackend {
    pub(crate) async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        Self { address }
    }

    /// Reads the header of a request, then sends this text and closes.
    pub(crate) async fn saying(words: &'static [u8]) -> Self {
        Self::start(move |mut stream| async move {
            let mut header = Vec::new();
            while !header.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => header.push(byte),
                    Err(_) => return,
                }
            }
            let _said = stream.write_all(words).await;
        })
        .await
    }

    /// Responds with a body without an end. Sends `asked` when a request arrives, and `let go` when the connection closes.
    pub(crate) async fn endless() -> (Self, UnboundedReceiver<&'static str>) {
        let (sender, states) = unbounded_channel();
        let backend = Self::start(move |mut stream| {
            let sender = sender.clone();
            async move {
                drop(stream.read(&mut [0; 1024]).await);
                sender.send("asked").unwrap();
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await);
                while stream.write_all(&[b'x'; 8_192]).await.is_ok() {}
                sender.send("let go").unwrap();
            }
        });
        (backend.await, states)
    }

    pub(crate) fn upstream(&self) -> Upstream {
        format!("http://{}", self.address).parse().expect("an upstream")
    }
}
