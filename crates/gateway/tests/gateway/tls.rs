//! TLS on both sides, and certificates that are replaced while the gateway runs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use spile_gateway::{Roots, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{Backend, RawBackend, in_time, open, running, to, until};

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

/// An upstream that agrees on one of these protocols, or on none where there are none. Over HTTP/1.1 it says on which
/// and for how many requests on the connection, and becomes a websocket where it is asked to. Over HTTP/2 it says 421.
async fn speaking(protocols: &'static [&'static str]) -> (RawBackend, CertificateDer<'static>) {
    let (root, _, key) = certificate();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![root.clone()], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let backend = RawBackend::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            match stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec) {
                Some(agreed) if agreed == b"h2" => over_http2(stream).await,
                agreed => over_http1(stream, agreed).await,
            }
        }
    })
    .await;
    (backend, root)
}

async fn over_http1(mut stream: tokio_rustls::server::TlsStream<TcpStream>, agreed: Option<Vec<u8>>) {
    let agreed = agreed.map_or_else(|| "nothing".to_owned(), |name| String::from_utf8(name).unwrap());
    for number in 1.. {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            asked.push(byte);
        }
        if String::from_utf8(asked).unwrap().to_ascii_lowercase().contains("\r\nupgrade: websocket\r\n") {
            let switch = b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
            stream.write_all(switch).await.unwrap();
            let (mut from, mut back) = tokio::io::split(stream);
            return drop(tokio::io::copy(&mut from, &mut back).await);
        }
        let words = format!("{agreed}, {number}");
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{words}", words.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn over_http2(stream: tokio_rustls::server::TlsStream<TcpStream>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let answer = http::Response::builder().status(421).body(()).unwrap();
        drop(respond.send_response(answer, true));
    }
}

fn over_tls(backend: &RawBackend) -> spile_gateway::Upstream {
    format!("https://localhost:{}", backend.address.port()).parse().unwrap()
}

#[tokio::test]
async fn an_upstream_over_tls_may_speak_http_1_alone_and_need_not_say_so() {
    for (protocols, agreed) in [(&["http/1.1"][..], "http/1.1"), (&[], "nothing")] {
        let (backend, root) = speaking(protocols).await;
        let gateway = running(open(to(over_tls(&backend))).roots(Roots::Only(vec![root]))).await;
        let mut client = gateway.client().await;
        for number in 1..=2 {
            let answer = in_time("an answer", client.get("/", &[])).await;
            assert_eq!(answer.status, 200);
            assert_eq!(answer.body, format!("{agreed}, {number}"), "the connection is kept");
        }
    }
}

#[tokio::test]
async fn a_websocket_goes_over_http_1_where_the_upstream_would_rather_speak_http_2() {
    let (backend, root) = speaking(&["h2", "http/1.1"]).await;
    let gateway = running(open(to(over_tls(&backend))).roots(Roots::Only(vec![root]))).await;
    assert_eq!(gateway.get("/", &[]).await.status, 421, "everything else goes over HTTP/2");
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let asks = b"GET / HTTP/1.1\r\nHost: g\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello";
    client.write_all(asks).await.unwrap();
    let mut heard = Vec::new();
    in_time("the echo", async {
        while !heard.ends_with(b"\r\n\r\nhello") {
            heard.push(client.read_u8().await.expect("more bytes"));
        }
    })
    .await;
    assert!(heard.starts_with(b"HTTP/1.1 101"));
}
