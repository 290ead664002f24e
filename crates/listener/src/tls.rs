//! TLS towards clients: a certificate and its key, and who vouches for clients, in files that may be replaced at any
//! time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use crate::watched::{LoadError, Watched};

/// The listener's side of TLS. Cheap to clone; clones read their files together.
#[derive(Clone)]
pub struct Tls(Arc<Watched<ServerConfig>>);

/// The files of one listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsFiles {
    /// The chain that clients see, in PEM.
    pub certificate_file: PathBuf,
    /// The key that belongs to it, in PEM.
    pub key_file: PathBuf,
    /// Authorities of which one must have issued the client's certificate, in PEM. Without it clients show none.
    pub client_ca_file: Option<PathBuf>,
}

impl Tls {
    /// HTTP/2 and HTTP/1.1, in the order that a listener prefers.
    pub const HTTP: &[&str] = &["h2", "http/1.1"];
    /// HTTP/2 and nothing else.
    pub const HTTP2: &[&str] = &["h2"];
    /// What is not HTTP has no name here.
    pub const OTHER: &[&str] = &[];

    /// TLS with these files and protocols. The files are read again when they change.
    pub fn from_files(files: TlsFiles, protocols: &'static [&str]) -> Result<Self, LoadError> {
        let TlsFiles { certificate_file, key_file, client_ca_file } = files;
        let paths = [certificate_file, key_file].into_iter().chain(client_ca_file).collect();
        let load = |paths: &[PathBuf]| server_config(&paths[0], &paths[1], paths.get(2), protocols);
        Ok(Self(Arc::new(Watched::load(paths, load)?)))
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
) -> Result<ServerConfig, LoadError> {
    let certificate = Arc::new(Certificate(Arc::new(certified_key(chain, key)?)));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| LoadError::new(chain, why))?;
    let config = match client_ca {
        None => config.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            config.with_client_cert_verifier(verifier.map_err(|why| LoadError::new(path, why))?)
        }
    };
    let mut config = config.with_cert_resolver(certificate);
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}

fn authorities(path: &Path) -> Result<RootCertStore, LoadError> {
    let wrong = |why: &dyn std::fmt::Display| LoadError::new(path, why);
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

/// Shown whatever name the client asks for.
#[derive(Debug)]
struct Certificate(Arc<CertifiedKey>);

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// The chain and its key, unless they do not belong together.
pub fn certified_key(chain: &Path, key: &Path) -> Result<CertifiedKey, LoadError> {
    let wrong_chain = |why| LoadError::new(chain, why);
    let certificates = CertificateDer::pem_file_iter(chain).map_err(wrong_chain)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(wrong_chain)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|why| LoadError::new(key, why))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let certified = CertifiedKey::from_der(certificates, private, &provider);
    certified.map_err(|why| LoadError::new(chain, why))
}
