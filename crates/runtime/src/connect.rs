//! Opens connections.

use std::io;
use std::path::Path;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::Runtime;

/// A byte stream: TCP, TLS or a Unix socket.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// The target of a connection.
#[derive(Clone, Copy, Debug)]
pub enum DialTarget<'a> {
    /// A host, by name or number, and a port.
    Tcp(&'a str, u16),
    /// A Unix socket.
    Unix(&'a Path),
}

impl Runtime {
    /// Opens a connection, without a timeout.
    pub async fn connect(&self, target: DialTarget<'_>) -> io::Result<Box<dyn ByteStream>> {
        if let Some(driver) = &self.0 {
            return driver.connect(target).await;
        }
        match target {
            DialTarget::Tcp(host, port) => {
                let stream = TcpStream::connect((host, port)).await?;
                set_socket_options(&stream)?;
                Ok(Box::new(stream))
            }
            #[cfg(unix)]
            DialTarget::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            DialTarget::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Sends small writes at once, and detects a lost peer while the connection is idle.
fn set_socket_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(2)))?;
    Ok(())
}
