//! New connections to upstreams.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::address::{Protocol, Upstream};
use super::http1::{Http1, Transport};
use super::http2::Http2;
use super::lines::NewLine;

/// Opens connections within a time.
#[derive(Clone)]
pub(crate) struct Dialer {
    tls: Arc<ClientConfig>,
    /// The same without HTTP/2.
    only_http1: Arc<ClientConfig>,
    /// Bytes of one answer over HTTP/2 that may arrive before the client takes them.
    stream_window: u32,
}

/// Why no connection came about. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Http(#[from] h2::Error),
}

impl Dialer {
    pub(crate) fn new(tls: Arc<ClientConfig>, stream_window: u32) -> Self {
        let mut only_http1 = ClientConfig::clone(&tls);
        only_http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { tls, only_http1: Arc::new(only_http1), stream_window }
    }

    pub(crate) async fn dial(&self, upstream: &Upstream, within: Duration) -> Result<NewLine, DialError> {
        let dialing = tokio::time::timeout(within, self.open(upstream, &self.tls));
        dialing.await.unwrap_or(Err(DialError::TimedOut(within)))
    }

    /// A connection that can become another protocol: one of HTTP/2 cannot.
    pub(crate) async fn dial_to_upgrade(
        &self,
        upstream: &Upstream,
        within: Duration,
    ) -> Result<NewLine, DialError> {
        let dialing = tokio::time::timeout(within, self.open(upstream, &self.only_http1));
        dialing.await.unwrap_or(Err(DialError::TimedOut(within)))
    }

    async fn open(&self, upstream: &Upstream, tls: &Arc<ClientConfig>) -> Result<NewLine, DialError> {
        if let Some(path) = &upstream.socket {
            let stream = UnixStream::connect(path).await?;
            return match upstream.protocol {
                Protocol::Http2 => self.http2_line(stream).await,
                Protocol::Http1 | Protocol::Tls => Ok(http1_line(Transport::Unix(stream))),
            };
        }
        let stream = TcpStream::connect((upstream.host(), upstream.port())).await?;
        // Requests are written whole: waiting to fill a segment would only delay them.
        stream.set_nodelay(true)?;
        match upstream.protocol {
            Protocol::Http1 => Ok(http1_line(Transport::Plain(stream))),
            Protocol::Http2 => self.http2_line(stream).await,
            Protocol::Tls => self.open_tls(upstream, stream, tls).await,
        }
    }

    async fn open_tls(
        &self,
        upstream: &Upstream,
        stream: TcpStream,
        tls: &Arc<ClientConfig>,
    ) -> Result<NewLine, DialError> {
        let name = ServerName::try_from(upstream.host().to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            self.http2_line(stream).await
        } else {
            Ok(http1_line(Transport::Tls(Box::new(stream))))
        }
    }

    async fn http2_line(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<NewLine, DialError> {
        Ok(NewLine::Http2(Http2::open(stream, self.stream_window).await?))
    }
}

fn http1_line(transport: Transport) -> NewLine {
    NewLine::Http1(Box::new(Http1::new(transport)))
}
