//! TLS on both sides, and certificates that are replaced while the gateway runs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use spile_gateway::{Roots, Tls, TlsFiles, UpstreamTls, UpstreamTlsError, UpstreamTlsFiles};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{Backend, RawBackend, exchange, in_time, open, running, to, until};

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

fn tls_in(folder: &Path) -> Tls {
    let (certificate_file, key_file) = (folder.join("chain.pem"), folder.join("key.pem"));
    Tls::from_files(TlsFiles { certificate_file, key_file, client_ca_file: None }, Tls::HTTP).unwrap()
}

#[tokio::test]
async fn clients_and_upstreams_may_both_speak_tls_and_certificates_may_change() {
    let folder = tempfile::tempdir().unwrap();
    let (first, chain, key) = certificate();
    write(folder.path(), &chain, &key);
    let backend = Backend::friendly().await;
    let files = || tls_in(folder.path());
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
async fn a_refusal_can_be_read_over_tls_by_a_client_that_still_sends() {
    let folder = tempfile::tempdir().unwrap();
    let (root, chain, key) = certificate();
    write(folder.path(), &chain, &key);
    let backend = Backend::friendly().await;
    let tls = tls_in(folder.path());
    let gateway = running(open(to(backend.upstream()).max_body(1_000)).tls(tls)).await;
    let body = vec![b'x'; 10_000_000];
    let head = format!("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n", body.len());
    for round in 0..5 {
        let mut client = connect(gateway.address, &root, "http/1.1").await.unwrap();
        client.write_all(head.as_bytes()).await.unwrap();
        let sent = in_time("all to be sent", client.write_all(&body)).await;
        assert!(sent.is_ok() && client.flush().await.is_ok(), "round {round}: {sent:?}");
        let mut answer = String::new();
        in_time("the refusal", client.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413"), "round {round}: {answer}");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_behind_a_request_that_is_not_read_yet_is_noticed_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (root, chain, key) = certificate();
    write(folder.path(), &chain, &key);
    let (tell, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let backend = RawBackend::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            while let Ok(bytes) = stream.read(&mut [0; 1024]).await {
                tell.send(bytes).unwrap();
                if bytes == 0 {
                    return;
                }
            }
        }
    });
    let gateway = running(open(to(backend.await.upstream())).tls(tls_in(folder.path()))).await;
    let mut client = connect(gateway.address, &root, "http/1.1").await.unwrap();
    client.write_all(&b"GET / HTTP/1.1\r\nHost: g\r\n\r\n".repeat(1_000)).await.unwrap();
    client.flush().await.unwrap();
    assert_ne!(in_time("a request", heard.recv()).await, Some(0));
    drop(client);
    assert_eq!(in_time("the gateway to hang up", heard.recv()).await, Some(0));
}

#[tokio::test]
async fn an_upstream_that_nobody_vouches_for_gets_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let (_, chain, key) = certificate();
    write(folder.path(), &chain, &key);
    let backend = Backend::friendly().await;
    let tls = tls_in(folder.path());
    let inner = running(open(to(backend.upstream())).tls(tls)).await;
    let upstream = format!("https://localhost:{}", inner.address.port()).parse().unwrap();
    let outer = running(open(to(upstream)).roots(Roots::Only(vec![certificate().0]))).await;
    assert_eq!(outer.get("/", &[]).await.status, 502);
    assert!(backend.seen().is_empty());
}

/// An upstream that negotiates one of these protocols, or none if the list is empty. Over HTTP/1.1 its response names
/// the protocol and the number of requests on the connection, and it accepts upgrades to websocket. Over HTTP/2 it
/// responds with 421.
async fn speaking(protocols: &'static [&'static str]) -> (RawBackend, CertificateDer<'static>) {
    let (root, _, key) = certificate();
    (speaking_as(protocols, &root, &key).await, root)
}

/// The same with this certificate.
async fn speaking_as(
    protocols: &'static [&'static str],
    root: &CertificateDer<'static>,
    key: &str,
) -> RawBackend {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![root.clone()], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    RawBackend::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            match stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec) {
                Some(agreed) if agreed == b"h2" => over_http2(stream).await,
                agreed => over_http1(stream, agreed).await,
            }
        }
    })
    .await
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

/// An upstream that requires a client certificate of these authorities. Its response names the server name that it was
/// asked for.
async fn demanding(clients: &CertificateDer<'static>) -> (RawBackend, String) {
    let (own, pem, key) = certificate();
    let mut roots = RootCertStore::empty();
    roots.add(clients.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let roots = Arc::new(roots);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![own], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let backend = RawBackend::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let name = stream.get_ref().1.server_name().unwrap_or("nothing").to_owned();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { return };
                asked.push(byte);
            }
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", name.len());
            stream.write_all((head + &name).as_bytes()).await.unwrap();
            drop(stream.shutdown().await);
        }
    })
    .await;
    (backend, pem)
}

/// A client certificate and its key.
fn client_certificate() -> (CertificateDer<'static>, String, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["gateway".to_owned()]).unwrap();
    (cert.der().clone(), cert.pem(), signing_key.serialize_pem())
}

#[tokio::test]
async fn an_upstream_that_asks_who_the_gateway_is_gets_its_certificate_also_after_it_was_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| Some(folder.path().join(name));
    let (known, chain, key) = client_certificate();
    let (backend, authority) = demanding(&known).await;
    std::fs::write(folder.path().join("ca.pem"), authority).unwrap();
    let upstream = format!("https://127.0.0.1:{}", backend.address.port()).parse::<spile_gateway::Upstream>();
    let upstream = upstream.unwrap();

    let mut files = UpstreamTlsFiles::default();
    (files.ca_file, files.server_name) = (path("ca.pem"), Some("localhost".to_owned()));
    let anonymous = UpstreamTls::load(files.clone()).unwrap();
    let gateway = running(open(to(upstream.clone()).upstream_tls(&anonymous))).await;
    assert_eq!(gateway.get("/", &[]).await.status, 502, "without a certificate it is not let in");

    let (_, stranger, strangers_key) = client_certificate();
    write(folder.path(), &stranger, &strangers_key);
    (files.certificate_file, files.key_file) = (path("chain.pem"), path("key.pem"));
    let tls = UpstreamTls::load(files.clone()).unwrap();
    let gateway = running(open(to(upstream.clone()).upstream_tls(&tls))).await;
    assert_eq!(gateway.get("/", &[]).await.status, 502, "nor with one that is not known");
    write(folder.path(), &chain, &key);
    let mut client = gateway.client().await;
    in_time("the new certificate", async { while client.get("/", &[]).await.status != 200 {} }).await;
    assert_eq!(client.get("/", &[]).await.body, "localhost", "the name that the upstream is asked for");

    files.server_name = None;
    let by_address = UpstreamTls::load(files).unwrap();
    let gateway = running(open(to(upstream).upstream_tls(&by_address))).await;
    assert_eq!(gateway.get("/", &[]).await.status, 502, "its certificate says nothing of the address");
}

#[tokio::test]
async fn routes_that_meet_one_upstream_in_two_ways_share_no_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (root, pem, key) = certificate();
    let backend = speaking_as(&["http/1.1"], &root, &key).await;
    std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
    let named = |name: &str| {
        let mut files = UpstreamTlsFiles::default();
        files.ca_file = Some(folder.path().join("ca.pem"));
        files.server_name = Some(name.to_owned());
        UpstreamTls::load(files).unwrap()
    };
    let right = to(over_tls(&backend)).upstream_tls(&named("localhost"));
    let wrong = to(over_tls(&backend)).named("wrong").host("wrong.test").unwrap();
    let gateway = running(open(right).route(wrong.upstream_tls(&named("another.test")))).await;
    let mut client = gateway.client().await;
    assert_eq!(client.get("/", &[]).await.status, 200);
    let asks = b"GET / HTTP/1.1\r\nHost: wrong.test\r\nConnection: close\r\n\r\n";
    assert!(exchange(gateway.address, asks).await.starts_with("HTTP/1.1 502"));
}

#[test]
fn a_certificate_needs_its_own_key_and_a_name_has_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let ((_, chain, _), (_, _, key)) = (client_certificate(), client_certificate());
    write(folder.path(), &chain, &key);
    let mut files = UpstreamTlsFiles::default();
    files.certificate_file = Some(folder.path().join("chain.pem"));
    assert!(matches!(UpstreamTls::load(files.clone()), Err(UpstreamTlsError::Unpaired)));
    files.key_file = Some(folder.path().join("key.pem"));
    assert!(matches!(UpstreamTls::load(files), Err(UpstreamTlsError::File(_))));
    let mut files = UpstreamTlsFiles::default();
    files.server_name = Some("two words".to_owned());
    assert!(matches!(UpstreamTls::load(files), Err(UpstreamTlsError::ServerName(_))));
}
