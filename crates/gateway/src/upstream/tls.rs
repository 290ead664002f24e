//! TLS with upstreams: trusted authorities and client certificates.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use spile_listener::{FileLoadError, WatchedFiles, certified_key};

/// The certificate authorities that are trusted for upstreams.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Roots {
    /// Those of the operating system.
    #[default]
    System,
    /// Only these, for upstreams with certificates of a private authority.
    Only(Vec<CertificateDer<'static>>),
}

impl Roots {
    /// Only the authorities whose certificates are in this PEM file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, FileLoadError> {
        let path = path.as_ref();
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let certificates = read.map_err(|why| FileLoadError::new(path, why))?;
        if certificates.is_empty() {
            return Err(FileLoadError::new(path, "the file holds no certificate"));
        }
        Ok(Self::Only(certificates))
    }

    /// A client configuration that verifies certificates and offers HTTP/2 before HTTP/1.1.
    fn client(&self, identity: Option<CertifiedKey>) -> Result<ClientConfig, rustls::Error> {
        let mut store = RootCertStore::empty();
        match self {
            // A machine without authorities cannot use TLS upstreams, but plain ones still work.
            Self::System => {
                let _counts = store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Self::Only(own) => own.iter().try_for_each(|certificate| store.add(certificate.clone()))?,
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store);
        let mut config = match identity {
            Some(identity) => config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity))),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The files with TLS settings for upstreams.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct UpstreamTlsFiles {
    /// The trusted authorities, in PEM. Those of the operating system if `None`.
    pub ca_file: Option<PathBuf>,
    /// The certificate chain for upstreams that ask for a client certificate, in PEM.
    pub certificate_file: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    pub key_file: Option<PathBuf>,
    /// The server name to request and to verify. The upstream's own host if `None`.
    pub server_name: Option<String>,
}

/// TLS settings for upstreams. The files are read again when they change. Two settings with the same files are equal.
#[derive(Clone)]
pub struct UpstreamTls(Arc<LoadedTls>);

struct LoadedTls {
    files: UpstreamTlsFiles,
    server_name: Option<ServerName<'static>>,
    clients: ClientConfigSource,
}

enum ClientConfigSource {
    Fixed(Arc<ClientConfigs>),
    Files(WatchedFiles<ClientConfigs>),
}

/// The client configurations that are built from the settings.
pub(crate) struct ClientConfigs {
    pub(crate) either_version: Arc<ClientConfig>,
    /// The configuration without HTTP/2.
    pub(crate) only_http1: Arc<ClientConfig>,
}

impl UpstreamTls {
    /// Reads the files.
    pub fn load(files: UpstreamTlsFiles) -> Result<Self, UpstreamTlsError> {
        let server_name = files.server_name.as_ref().map(|name| {
            ServerName::try_from(name.clone()).map_err(|_| UpstreamTlsError::ServerName(name.clone()))
        });
        let server_name = server_name.transpose()?;
        if files.certificate_file.is_some() != files.key_file.is_some() {
            return Err(UpstreamTlsError::Unpaired);
        }
        let paths = [&files.ca_file, &files.certificate_file, &files.key_file];
        let paths = paths.into_iter().flatten().cloned().collect();
        let read = files.clone();
        let clients =
            ClientConfigSource::Files(WatchedFiles::load(paths, move |_| ClientConfigs::read(&read))?);
        Ok(Self(Arc::new(LoadedTls { files, server_name, clients })))
    }

    /// Trusts these authorities, without a client certificate.
    pub(crate) fn trusting(roots: &Roots) -> Result<Self, rustls::Error> {
        let clients = ClientConfigSource::Fixed(Arc::new(ClientConfigs::new(roots.client(None)?)));
        Ok(Self(Arc::new(LoadedTls { files: UpstreamTlsFiles::default(), server_name: None, clients })))
    }

    pub(crate) fn client_configs(&self) -> Arc<ClientConfigs> {
        match &self.0.clients {
            ClientConfigSource::Fixed(clients) => Arc::clone(clients),
            ClientConfigSource::Files(files) => files.now(),
        }
    }

    /// A client configuration for HTTP/1.1, for other clients of the same servers.
    pub fn http1_client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client_configs().only_http1)
    }

    /// The server name. `None` for the upstream's own host.
    pub(crate) fn server_name(&self) -> Option<&ServerName<'static>> {
        self.0.server_name.as_ref()
    }

    /// Reads the files again if they have changed.
    pub(crate) fn refresh(&self) {
        if let ClientConfigSource::Files(files) = &self.0.clients {
            files.refresh();
        }
    }

    /// Identifies this instance, to refresh shared settings only once.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl ClientConfigs {
    fn read(files: &UpstreamTlsFiles) -> Result<Self, FileLoadError> {
        let roots = files.ca_file.as_ref().map(Roots::from_file).transpose()?.unwrap_or_default();
        let pair = files.certificate_file.as_ref().zip(files.key_file.as_ref());
        let identity = pair.map(|(chain, key)| certified_key(chain, key)).transpose()?;
        let named =
            files.ca_file.as_deref().or(files.certificate_file.as_deref()).unwrap_or(Path::new("TLS"));
        Ok(Self::new(roots.client(identity).map_err(|why| FileLoadError::new(named, why))?))
    }

    fn new(config: ClientConfig) -> Self {
        let mut only_http1 = config.clone();
        only_http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { either_version: Arc::new(config), only_http1: Arc::new(only_http1) }
    }
}

/// Why TLS settings for upstreams are not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamTlsError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileLoadError),
    /// A certificate without a key, or a key without a certificate.
    #[error("a certificate and its key go together: one of them is missing")]
    Unpaired,
    /// The server name is malformed.
    #[error("`{0}` is not a server name")]
    ServerName(String),
}

impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        self.0.files == other.0.files
    }
}

impl Eq for UpstreamTls {}

impl Hash for UpstreamTls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.files.hash(state);
    }
}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.files.fmt(f)
    }
}
