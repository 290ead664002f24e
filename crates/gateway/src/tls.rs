//! TLS towards clients: a certificate and its key, in files that may be replaced at any time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::watched::{LoadError, Watched};

/// The listener's side of TLS. HTTP/2 is offered before HTTP/1.1.
#[derive(Clone)]
pub struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
}

impl Tls {
    /// Presents the chain in one PEM file, with the key in another. Both are read again when they change.
    pub fn from_files(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, LoadError> {
        let paths = vec![chain.into(), key.into()];
        let watched = Watched::load(paths.clone(), |paths| certified_key(&paths[0], &paths[1]))?;
        let certificates = Arc::new(Certificates(watched));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| LoadError::new(&paths[0], why))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), certificates })
    }

    pub(crate) fn refresh(&self) {
        self.certificates.0.refresh();
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

struct Certificates(Watched<CertifiedKey>);

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.now())
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificates")
    }
}

/// The chain and its key, unless they do not belong together.
pub(crate) fn certified_key(chain: &Path, key: &Path) -> Result<CertifiedKey, LoadError> {
    let wrong_chain = |why| LoadError::new(chain, why);
    let certificates = CertificateDer::pem_file_iter(chain).map_err(wrong_chain)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(wrong_chain)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|why| LoadError::new(key, why))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let certified = CertifiedKey::from_der(certificates, private, &provider);
    certified.map_err(|why| LoadError::new(chain, why))
}
