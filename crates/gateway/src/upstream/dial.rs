//! New connections to upstreams.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::{Protocol, Upstream};
use super::http1::{Http1, Transport};
use super::lines::Line;

/// How often an HTTP/2 upstream is asked whether it is still there.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Opens connections within a time.
#[derive(Clone)]
pub(crate) struct Dialer {
    tls: Arc<ClientConfig>,
    /// The same without HTTP/2.
    only_http1: Arc<ClientConfig>,
}

/// Why no connection came about. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

impl Dialer {
    pub(crate) fn new(tls: Arc<ClientConfig>) -> Self {
        let mut only_http1 = ClientConfig::clone(&tls);
        only_http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { tls, only_http1: Arc::new(only_http1) }
    }

    pub(crate) async fn dial(&self, upstream: &Upstream, within: Duration) -> Result<Line, DialError> {
        let dialing = tokio::time::timeout(within, self.open(upstream, &self.tls));
        dialing.await.unwrap_or(Err(DialError::TimedOut(within)))
    }

    /// A connection that can become another protocol: one of HTTP/2 cannot.
    pub(crate) async fn dial_to_upgrade(
        &self,
        upstream: &Upstream,
        within: Duration,
    ) -> Result<Line, DialError> {
        let dialing = tokio::time::timeout(within, self.open(upstream, &self.only_http1));
        dialing.await.unwrap_or(Err(DialError::TimedOut(within)))
    }

    async fn open(&self, upstream: &Upstream, tls: &Arc<ClientConfig>) -> Result<Line, DialError> {
        let stream = TcpStream::connect((upstream.host(), upstream.port())).await?;
        // Requests are written whole: waiting to fill a segment would only delay them.
        stream.set_nodelay(true)?;
        match upstream.protocol {
            Protocol::Http1 => Ok(http1_line(Transport::Plain(stream))),
            Protocol::Http2 => http2_line(stream).await,
            Protocol::Tls => open_tls(upstream, stream, tls).await,
        }
    }
}

async fn open_tls(
    upstream: &Upstream,
    stream: TcpStream,
    tls: &Arc<ClientConfig>,
) -> Result<Line, DialError> {
    let name = ServerName::try_from(upstream.host().to_owned()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2_line(stream).await
    } else {
        Ok(http1_line(Transport::Tls(Box::new(stream))))
    }
}

fn http1_line(transport: Transport) -> Line {
    Line::Http1(Box::new(Http1::new(transport)))
}

async fn http2_line(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Line, DialError> {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL).adaptive_window(true);
    let (sender, connection) = http.handshake(TokioIo::new(stream)).await?;
    // Whoever waits for an answer hears of a failure; the connection itself has nobody else to tell.
    tokio::spawn(async move { drop(connection.await) });
    Ok(Line::Http2(sender))
}
