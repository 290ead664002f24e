//! A connection to a server, over TLS if the scheme is `https`.

use std::env::var_os;

use anyhow::Context;
use rustls::pki_types::ServerName;
use spile_gateway::{UpstreamTls, UpstreamTlsFiles};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::server_url::ServerUrl;

/// The variables that name TLS files: the authorities that are trusted, and the client certificate.
const CA_FILE: &str = "SPILE_TLS_CA_FILE";
const CERTIFICATE_FILE: &str = "SPILE_TLS_CERTIFICATE_FILE";
const KEY_FILE: &str = "SPILE_TLS_KEY_FILE";

/// A transport of either kind.
pub(super) type AnyTransport = Box<dyn AnyIo>;

/// A byte stream of any type.
pub(super) trait AnyIo: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<I: AsyncRead + AsyncWrite + Send + Unpin + 'static> AnyIo for I {}

/// Connects to the server of this URL.
pub(super) async fn connect(url: &ServerUrl) -> anyhow::Result<AnyTransport> {
    let host = url.host();
    let stream = TcpStream::connect((host, url.port())).await?;
    if !url.encrypted {
        return Ok(Box::new(stream));
    }
    let mut files = UpstreamTlsFiles::default();
    files.ca_file = var_os(CA_FILE).map(Into::into);
    files.certificate_file = var_os(CERTIFICATE_FILE).map(Into::into);
    files.key_file = var_os(KEY_FILE).map(Into::into);
    let tls = UpstreamTls::load(files)?.http1_client();
    let name = ServerName::try_from(host.to_owned())?;
    let stream = TlsConnector::from(tls).connect(name, stream).await;
    let hint = format!("no TLS with it; {CA_FILE} names a file of the authority that issued its certificate");
    Ok(Box::new(stream.context(hint)?))
}
