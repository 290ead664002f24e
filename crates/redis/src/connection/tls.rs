//! TLS by rustls: trusted authorities and the client certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use spile_runtime::ByteStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::connection::url::ClientTlsFiles;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A PEM file is missing or has other content.
    #[error("{what} {}: {why}", path.display())]
    File {
        /// The expected content of the file.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The system has no trusted authorities.
    #[error("the system has no trusted certificate authorities: name one with ca=FILE")]
    NoAuthorities,
    /// The certificate and the key cannot be used.
    #[error("the client certificate and its key cannot be used: {0}")]
    Client(#[source] rustls::Error),
    /// The TLS library rejects its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[source] rustls::Error),
}

/// Opens TLS connections.
#[derive(Clone)]
pub(crate) struct TlsClient(TlsConnector);

impl TlsClient {
    /// Reads the files once, so that an error shows when the store is built and not when it connects.
    pub(crate) fn new(files: &ClientTlsFiles) -> Result<Self, TlsError> {
        // The provider is set here, so that the store does not depend on the default provider of the process.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_root_certificates(authorities(files.authority.as_deref())?);
        let config = match &files.client {
            Some((certificate, key)) => builder
                .with_client_auth_cert(certificates("client certificate", certificate)?, private_key(key)?)
                .map_err(TlsError::Client)?,
            None => builder.with_no_client_auth(),
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Performs the handshake over `stream`, and checks that the certificate is for `host`.
    pub(crate) async fn connect(
        &self,
        host: &str,
        stream: Box<dyn ByteStream>,
    ) -> std::io::Result<TlsStream<Box<dyn ByteStream>>> {
        let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
        self.0.connect(name, stream).await
    }
}

fn authorities(own: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let trusted = match own {
        Some(path) => certificates("certificate authority", path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    store.add_parsable_certificates(trusted);
    if store.is_empty() { Err(TlsError::NoAuthorities) } else { Ok(store) }
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = found.map_err(|why| unreadable(what, path, &why))?;
    if found.is_empty() { Err(unreadable(what, path, &"holds no certificate")) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|why| unreadable("client key", path, &why))
}

fn unreadable(what: &'static str, path: &Path, why: &dyn std::fmt::Display) -> TlsError {
    TlsError::File { what, path: path.to_owned(), why: why.to_string() }
}
