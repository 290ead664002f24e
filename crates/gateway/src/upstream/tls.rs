//! Whom TLS upstreams are believed by.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::watched::LoadError;

/// The authorities that vouch for upstreams over TLS.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Roots {
    /// Those that the machine trusts.
    #[default]
    System,
    /// These, and no others: for upstreams with certificates of the house.
    Only(Vec<CertificateDer<'static>>),
}

impl Roots {
    /// The authorities whose certificates are in this file, in PEM, and no others.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let certificates = read.map_err(|why| LoadError::new(path, why))?;
        if certificates.is_empty() {
            return Err(LoadError::new(path, "the file holds no certificate"));
        }
        Ok(Self::Only(certificates))
    }

    /// The client side of TLS: certificates are checked, and HTTP/2 is offered before HTTP/1.1.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        let mut store = RootCertStore::empty();
        match self {
            // A machine without authorities reaches no upstream over TLS, and plain ones all the same.
            Self::System => {
                let _counts = store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Self::Only(own) => own.iter().try_for_each(|certificate| store.add(certificate.clone()))?,
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
