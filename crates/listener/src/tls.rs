//! TLS for clients: a certificate, its key and the authorities for client certificates, in files that may be replaced
//! at any time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use crate::watched_files::{FileLoadError, WatchedFiles};

/// The TLS configuration of a listener. Cheap to clone; clones share their files.
#[derive(Clone)]
pub struct Tls(Arc<WatchedFiles<ServerConfig>>);

/// The files of one listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsFiles {
    /// The certificate chain, in PEM.
    pub certificate_file: PathBuf,
    /// The private key of the certificate, in PEM.
    pub key_file: PathBuf,
    /// The authorities that may issue client certificates, in PEM. `None` if clients need no certificate.
    pub client_ca_file: Option<PathBuf>,
}

impl Tls {
    /// The ALPN names of HTTP/2 and HTTP/1.1, in order of preference.
    pub const HTTP: &[&str] = &["h2", "http/1.1"];
    /// The ALPN name of HTTP/2.
    pub const HTTP2: &[&str] = &["h2"];
    /// No ALPN, for protocols other than HTTP.
    pub const OTHER: &[&str] = &[];

    /// TLS with these files and ALPN names. The files are read again when they change.
    pub fn from_files(files: TlsFiles, protocols: &'static [&str]) -> Result<Self, FileLoadError> {
        let TlsFiles { certificate_file, key_file, client_ca_file } = files;
        let paths = [certificate_file, key_file].into_iter().chain(client_ca_file).collect();
        let load = |paths: &[PathBuf]| server_config(&paths[0], &paths[1], paths.get(2), protocols);
        Ok(Self(Arc::new(WatchedFiles::load(paths, load)?)))
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.0.now()
    }

    /// Reads the files again if they have changed. Blocks while it reads.
    pub fn refresh(&self) {
        self.0.refresh();
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

fn server_config(
    chain: &Path,
    key: &Path,
    client_ca: Option<&PathBuf>,
    protocols: &[&str],
) -> Result<ServerConfig, FileLoadError> {
    let certificate = Arc::new(Certificate(Arc::new(certified_key(chain, key)?)));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| FileLoadError::new(chain, why))?;
    let config = match client_ca {
        None => config.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            config.with_client_cert_verifier(verifier.map_err(|why| FileLoadError::new(path, why))?)
        }
    };
    let mut config = config.with_cert_resolver(certificate);
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}

fn authorities(path: &Path) -> Result<RootCertStore, FileLoadError> {
    let wrong = |why: &dyn std::fmt::Display| FileLoadError::new(path, why);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|why| wrong(&why))? {
        let added = roots.add(certificate.map_err(|why| wrong(&why))?);
        added.map_err(|why| wrong(&why))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"there is no certificate in it"));
    }
    Ok(roots)
}

/// The certificate for every server name.
#[derive(Debug)]
struct Certificate(Arc<CertifiedKey>);

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Reads the chain and its key. Fails if they do not belong together.
pub fn certified_key(chain: &Path, key: &Path) -> Result<CertifiedKey, FileLoadError> {
    let wrong_chain = |why| FileLoadError::new(chain, why);
    let certificates = CertificateDer::pem_file_iter(chain).map_err(wrong_chain)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(wrong_chain)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|why| FileLoadError::new(key, why))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let certified = CertifiedKey::from_der(certificates, private, &provider);
    certified.map_err(|why| FileLoadError::new(chain, why))
}
