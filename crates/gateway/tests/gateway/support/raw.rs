//! Bytes on sockets, for what no well-behaved client or server would send.

use std::net::SocketAddr;
use std::time::Duration;

use spile_gateway::Upstream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long anything may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the future resolves to, within a time that no healthy machine needs.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited too long for {what}"))
}

/// Asks until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    in_time(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Sends these bytes, and gives what comes back until the other side hangs up.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a listening gateway");
    // The gateway may hang up before it has read everything.
    let _sent = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ended = in_time("the gateway to hang up", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// An upstream that is handed the bare connection.
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

    /// Reads a request's header, then says these words and hangs up.
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

    pub(crate) fn upstream(&self) -> Upstream {
        format!("http://{}", self.address).parse().expect("an upstream")
    }
}
