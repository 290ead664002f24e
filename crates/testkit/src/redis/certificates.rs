//! A certificate authority that lasts as long as a test: its own certificate, one for the server, one for a client.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// PEM files in one folder, of which the client needs three and the server the rest.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes an authority and what it signs, and writes them into `folder`.
    ///
    /// # Panics
    /// Where the folder cannot be written.
    pub fn make(folder: &Path) -> Self {
        let made = Self { folder: folder.to_owned() };
        let authority = made.authority();
        made.sign("server", ExtendedKeyUsagePurpose::ServerAuth, &authority);
        made.sign("client", ExtendedKeyUsagePurpose::ClientAuth, &authority);
        made
    }

    /// The authority's certificate, which both sides trust and no system store knows.
    pub fn authority_file(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// The certificate that a client shows where the server asks for one.
    pub fn client_certificate_file(&self) -> PathBuf {
        self.file("client.pem")
    }

    /// The key to the client's certificate.
    pub fn client_key_file(&self) -> PathBuf {
        self.file("client.key")
    }

    /// The lines of `redis.conf` that make a server speak TLS only.
    pub(super) fn server_lines(&self, port: u16, asks_clients: bool) -> Vec<String> {
        let file = |name: &str| self.file(name).display().to_string();
        vec![
            "port 0".to_owned(),
            format!("tls-port {port}"),
            format!("tls-cert-file {}", file("server.pem")),
            format!("tls-key-file {}", file("server.key")),
            format!("tls-ca-cert-file {}", file("ca.pem")),
            format!("tls-auth-clients {}", if asks_clients { "yes" } else { "no" }),
        ]
    }

    fn authority(&self) -> Issuer<'static, KeyPair> {
        let mut params = named("Spile test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a self-signed certificate");
        self.write("ca.pem", &certificate.pem());
        Issuer::new(params, key)
    }

    fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose, authority: &Issuer<'_, KeyPair>) {
        let mut params = named(name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, authority).expect("a signed certificate");
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, pem: &str) {
        std::fs::write(self.file(name), pem).expect("a writable folder");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn named(common_name: &str) -> CertificateParams {
    let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(hosts).expect("valid host names");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
