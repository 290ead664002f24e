//! The receiver of an export: a URL that is resolved anew for each request, and used only at the address that was
//! checked.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::error::DeliveryError;
use super::public_address::is_public;

/// A connection, with or without TLS.
trait ReceiverIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ReceiverIo for S {}

/// A URL that can be posted to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HttpEndpoint {
    uri: Uri,
    pub(crate) private_allowed: bool,
}

impl HttpEndpoint {
    pub(crate) fn parse(url: &str) -> Result<Self, DeliveryError> {
        let uri: Uri = url.parse().map_err(|_| DeliveryError::Url(without_secrets(url)))?;
        let known = uri.scheme() == Some(&Scheme::HTTP) || uri.scheme() == Some(&Scheme::HTTPS);
        let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        if known && plain && uri.host().is_some_and(|host| !host.is_empty()) {
            Ok(Self { uri, private_allowed: false })
        } else {
            Err(DeliveryError::Url(without_secrets(url)))
        }
    }

    /// The path and query of the URL.
    fn path(&self) -> &str {
        self.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
    }

    /// The value of the `Host` header.
    fn authority(&self) -> &str {
        self.uri.authority().map_or("", http::uri::Authority::as_str)
    }

    /// Posts JSON. Succeeds if the receiver answers with a status of success within `timeout`.
    pub(crate) async fn post(
        &self,
        headers: &HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(), DeliveryError> {
        let request = Request::post(self.path())
            .header(HOST, self.authority())
            .header(USER_AGENT, concat!("spile/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json");
        let mut request = request.body(Full::new(body)).expect("the URL was parsed");
        request.headers_mut().extend(headers.clone());
        let answered = tokio::time::timeout(timeout, self.send(request)).await;
        match answered.unwrap_or(Err(DeliveryError::TimedOut))?.as_u16() {
            200..=299 => Ok(()),
            status @ 300..=399 => Err(DeliveryError::Redirected(status)),
            status @ (408 | 429 | 500..=599) => Err(DeliveryError::Failed(status)),
            status => Err(DeliveryError::Refused(status)),
        }
    }

    /// Sends a request on a new connection and reads the status of the response.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<StatusCode, DeliveryError> {
        let (mut sender, connection) = http1::handshake(self.connect().await?).await?;
        let mut answer = std::pin::pin!(sender.send_request(request));
        let mut connection = std::pin::pin!(connection);
        // Only the status is read. The connection is dropped with the rest of the response.
        tokio::select! {
            answer = &mut answer => Ok(answer?.status()),
            ended = &mut connection => { ended?; Ok(answer.await?.status()) }
        }
    }

    /// Connects to an address that was checked. The name is not resolved a second time, because it could have another
    /// address by then.
    async fn connect(&self) -> Result<TokioIo<Box<dyn ReceiverIo>>, DeliveryError> {
        let addresses = self.checked_addresses().await?;
        // Tries one address after the other: a machine may reach only IPv4 or only IPv6.
        let stream = TcpStream::connect(&*addresses).await?;
        if self.is_https() {
            let name = ServerName::try_from(self.host().to_owned()).map_err(std::io::Error::other)?;
            let stream = TlsConnector::from(tls()).connect(name, stream).await?;
            return Ok(TokioIo::new(Box::new(stream)));
        }
        Ok(TokioIo::new(Box::new(stream)))
    }

    /// Resolves the host. One private address is enough to refuse it: a name with both kinds looks like an attack.
    async fn checked_addresses(&self) -> Result<Vec<SocketAddr>, DeliveryError> {
        let port = self.uri.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 });
        let addresses: Vec<_> = lookup_host((self.host(), port)).await?.collect();
        let inside = addresses.iter().find(|address| !is_public(address.ip()));
        if let (Some(inside), false) = (inside, self.private_allowed) {
            return Err(DeliveryError::Private(inside.ip()));
        }
        if addresses.is_empty() { Err(DeliveryError::NoAddress) } else { Ok(addresses) }
    }

    /// The host, without the brackets around an IPv6 address.
    pub(super) fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    fn is_https(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }
}

/// The URL as it may be shown: the part before an `@` may contain a password.
fn without_secrets(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme @ ("http" | "https"), _)) => format!("{scheme}://***"),
        _ => "***".to_owned(),
    }
}

fn tls() -> Arc<ClientConfig> {
    static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has TLS 1.2 and 1.3");
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    });
    Arc::clone(&CONFIG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_posted_to_is_a_target() {
        for good in ["http://example.com/hook", "https://example.com:8443/a?b=c", "http://[2606:4700::1]/"] {
            assert!(HttpEndpoint::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "example.com",
            "ftp://example.com",
            "file:///etc/passwd",
            "http://",
            "http://u:p@example.com/",
        ] {
            assert!(HttpEndpoint::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_does_not_show_a_password() {
        let why = HttpEndpoint::parse("http://user:hunter2@example.com/").map(drop).unwrap_err().to_string();
        assert!(!why.contains("hunter2"), "{why}");
        let why = HttpEndpoint::parse("htps://example.com/hunter2").map(drop).unwrap_err().to_string();
        assert!(!why.contains("hunter2"), "{why}");
    }
}
