//! TLS on both sides, and certificates that are replaced while the gateway runs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use spile_gateway::{Roots, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{Backend, open, running, to, until};

fn certificate() -> (CertificateDer<'static>, String, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (cert.der().clone(), cert.pem(), signing_key.serialize_pem())
}

fn write(folder: &Path, chain: &str, key: &str) {
    std::fs::write(folder.join("chain.pem"), chain).unwrap();
    std::fs::write(folder.join("key.pem"), key).unwrap();
}

async fn connect(
    address: SocketAddr,
    root: &CertificateDer<'static>,
    alpn: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

#[tokio::test]
async fn clients_and_upstreams_may_both_speak_tls_and_certificates_may_change() {
    let folder = tempfile::tempdir().unwrap();
    let (first, chain, key) = certificate();
    write(folder.path(), &chain, &key);
    let backend = Backend::friendly().await;
    let files = || Tls::from_files(folder.path().join("chain.pem"), folder.path().join("key.pem")).unwrap();
    let inner = running(open(to(backend.upstream())).tls(files())).await;
    let upstream = format!("https://localhost:{}", inner.address.port()).parse().unwrap();
    let outer = running(open(to(upstream)).tls(files()).roots(Roots::Only(vec![first.clone()]))).await;

    let mut stream = connect(outer.address, &first, "http/1.1").await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(backend.last().header("x-forwarded-proto"), Some("https"));
    let http2 = connect(outer.address, &first, "h2").await.unwrap();
    assert_eq!(http2.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));

    let (second, chain, key) = certificate();
    write(folder.path(), &chain, "half a key");
    assert!(connect(outer.address, &first, "h2").await.is_ok(), "a broken file changes nothing");
    write(folder.path(), &chain, &key);
    until("the new certificate", || async { connect(outer.address, &second, "h2").await.is_ok() }).await;
}

#[tokio::test]
async fn an_upstream_that_nobody_vouches_for_gets_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let (_, chain, key) = certificate();
    write(folder.path(), &chain, &key);
    let backend = Backend::friendly().await;
    let tls = Tls::from_files(folder.path().join("chain.pem"), folder.path().join("key.pem")).unwrap();
    let inner = running(open(to(backend.upstream())).tls(tls)).await;
    let upstream = format!("https://localhost:{}", inner.address.port()).parse().unwrap();
    let outer = running(open(to(upstream)).roots(Roots::Only(vec![certificate().0]))).await;
    assert_eq!(outer.get("/", &[]).await.status, 502);
    assert!(backend.seen().is_empty());
}
