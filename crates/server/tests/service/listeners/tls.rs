//! TLS at every listener, with certificates of clients if they are asked for.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use spile_server::Config;
use spile_testkit::redis::Certificates;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{Process, Spile};

const TABLES: [&str; 5] = ["http", "admin", "grpc", "resp", "gateway"];

/// Its files are in the folder that `Certificates` wrote to.
fn config_text(asks_clients: bool) -> String {
    let clients = if asks_clients { "client_ca_file = \"ca.pem\"\n" } else { "" };
    let tls = TABLES.map(|table| {
        format!("[{table}.tls]\ncertificate_file = \"server.pem\"\nkey_file = \"server.key\"\n{clients}")
    });
    let route = "[[routes]]\npath = \"/\"\nupstream = \"http://127.0.0.1:1\"\n";
    format!("unmatched = \"pass\"\n{}{route}", tls.concat())
}

async fn start(folder: &Path, asks_clients: bool) -> Spile {
    let (path, text) = (folder.join("spile.toml"), config_text(asks_clients));
    let mut config = Config::parse(&path, text, []).expect("it works");
    let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    (config.listen.grpc, config.listen.resp, config.listen.gateway) = (any, any, any);
    Spile::start_with(config).await
}

fn doors(spile: &Spile) -> [(&'static str, SocketAddr); 5] {
    let on = |address: Option<SocketAddr>| address.expect("it is on");
    [
        ("http", spile.http),
        ("admin", spile.admin),
        ("grpc", on(spile.grpc)),
        ("resp", on(spile.resp)),
        ("gateway", on(spile.gateway)),
    ]
}

/// A connection that offers these protocols, with a certificate of its own if it has one to show.
async fn connect(
    address: SocketAddr,
    certificates: &Certificates,
    own: Option<&Certificates>,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(certificates.authority_file()).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain = CertificateDer::from_pem_file(own.client_certificate_file()).expect("one");
            let key = PrivateKeyDer::from_pem_file(own.client_key_file()).expect("a key");
            config.with_client_auth_cert(vec![chain], key).expect("they belong together")
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await.expect("it listens");
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Asks over whatever a listener speaks, and hands back the beginning of the answer.
async fn ask(name: &str, mut stream: TlsStream<TcpStream>) -> std::io::Result<String> {
    if name == "grpc" {
        let (client, connection) = h2::client::handshake(stream).await.map_err(std::io::Error::other)?;
        tokio::spawn(async move { drop(connection.await) });
        let mut client = client.ready().await.map_err(std::io::Error::other)?;
        let request = Request::post("https://localhost/grpc.health.v1.Health/Check");
        let request = request.header("content-type", "application/grpc").body(()).expect("a request");
        let (answer, mut body) = client.send_request(request, false).map_err(std::io::Error::other)?;
        body.send_data(Bytes::from_static(&[0; 5]), true).map_err(std::io::Error::other)?;
        return Ok(answer.await.map_err(std::io::Error::other)?.status().to_string());
    }
    let request = match name {
        "resp" => "PING\r\n",
        _ => "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    };
    stream.write_all(request.as_bytes()).await?;
    let mut answer = [0; 12];
    let read = stream.read(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer[..read]).into_owned())
}

fn expected(name: &str) -> &'static str {
    match name {
        "http" => "HTTP/1.1 404",
        "admin" => "HTTP/1.1 200",
        "grpc" => "200 OK",
        "resp" => "+PONG\r\n",
        _ => "HTTP/1.1 502",
    }
}

fn offered(name: &str) -> &'static [&'static str] {
    match name {
        "grpc" => &["h2"],
        "resp" => &[],
        _ => &["http/1.1"],
    }
}

#[tokio::test]
async fn every_listener_speaks_tls_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificates = Certificates::make(folder.path());
    let spile = start(folder.path(), false).await;
    for (name, address) in doors(&spile) {
        let stream = connect(address, &certificates, None, offered(name)).await.expect("a handshake");
        assert_eq!(ask(name, stream).await.expect("an answer"), expected(name), "{name}");
        let mut plain = TcpStream::connect(address).await.expect("it listens");
        plain.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it reads");
        let mut answer = Vec::new();
        let _end_or_reset = plain.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP") && !answer.starts_with(b"-"), "{name}: {answer:?}");
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_is_not_listened_to_if_one_is_asked_for() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (certificates, strangers) = (Certificates::make(folder.path()), Certificates::make(other.path()));
    let spile = start(folder.path(), true).await;
    for (name, address) in doors(&spile) {
        let known = connect(address, &certificates, Some(&certificates), offered(name)).await;
        assert_eq!(
            ask(name, known.expect("a handshake")).await.expect("an answer"),
            expected(name),
            "{name}"
        );
        for shown in [None, Some(&strangers)] {
            // Over TLS 1.3 the client hears of it only once it reads.
            let answer = match connect(address, &certificates, shown, offered(name)).await {
                Ok(stream) => ask(name, stream).await,
                Err(why) => Err(why),
            };
            assert_ne!(
                answer.ok().filter(|answer| !answer.is_empty()),
                Some(expected(name).to_owned()),
                "{name}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_shown_without_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    Certificates::make(folder.path());
    let path = folder.path().join("spile.toml");
    fs::write(&path, config_text(false)).expect("the folder is ours");
    let flags = ["--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--gateway", "127.0.0.1:0"];
    let file = path.to_str().expect("text");
    let spile = Process::serve(&[&["--config", file], &flags[..]].concat());
    // Another authority from now on: those who trust it alone are let in once the files are read again.
    let renewed = Certificates::make(folder.path());
    for name in TABLES {
        let address = spile.address(name).parse().expect("an address");
        let deadline = tokio::time::Instant::now() + spile_testkit::wait::PATIENCE;
        loop {
            if let Ok(stream) = connect(address, &renewed, None, offered(name)).await {
                assert_eq!(ask(name, stream).await.expect("an answer"), expected(name), "{name}");
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{name} shows the old certificate");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    assert!(spile.banner.contains("rediss://") && spile.banner.contains("https://"), "{}", spile.banner);
}

#[test]
fn a_certificate_that_does_not_work_is_refused_by_the_check() {
    let folder = tempfile::tempdir().expect("a folder");
    Certificates::make(folder.path());
    fs::write(folder.path().join("empty.pem"), "").expect("the folder is ours");
    for table in TABLES {
        for (chain, key, clients, words) in [
            ("server.pem", "none.key", "ca.pem", "none.key"),
            ("none.pem", "server.key", "ca.pem", "none.pem"),
            ("server.pem", "client.key", "ca.pem", "server.pem"),
            ("server.pem", "server.key", "empty.pem", "empty.pem"),
        ] {
            let path = folder.path().join("spile.toml");
            let text = format!(
                "[{table}.tls]\ncertificate_file = \"{chain}\"\nkey_file = \"{key}\"\nclient_ca_file = \"{clients}\"\n"
            );
            fs::write(&path, &text).expect("the folder is ours");
            let checked = Process::run(&["config", "check", path.to_str().expect("text")]);
            let said = String::from_utf8_lossy(&checked.stderr).into_owned();
            assert!(!checked.status.success() && said.contains(words), "{text}: {said}");
        }
    }
}

#[test]
fn the_command_line_asks_over_tls_and_shows_its_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificates = Certificates::make(folder.path());
    let path = folder.path().join("spile.toml");
    fs::write(&path, config_text(true)).expect("the folder is ours");
    let spile = Process::serve(&["--config", path.to_str().expect("text"), "--gateway", "127.0.0.1:0"]);
    let admin = format!("https://{}", spile.address("admin"));
    let file = |path: std::path::PathBuf| path.to_str().expect("text").to_owned();
    let (ca, certificate) =
        (file(certificates.authority_file()), file(certificates.client_certificate_file()));
    let key = file(certificates.client_key_file());
    let trusted = ("SPILE_TLS_CA_FILE", &*ca);
    let shown = [("SPILE_TLS_CERTIFICATE_FILE", &*certificate), ("SPILE_TLS_KEY_FILE", &*key)];
    let health = |variables: &[(&str, &str)]| Process::run_with(&["health", "--admin", &admin], variables);
    let known = health(&[trusted, shown[0], shown[1]]);
    assert!(known.status.success(), "{}", String::from_utf8_lossy(&known.stderr));
    for (variables, words) in [
        (&[trusted][..], "no server answers at https://"),
        (&shown[..], "SPILE_TLS_CA_FILE"),
        (&[trusted, shown[0]], "a certificate and its key go together"),
    ] {
        let refused = health(variables);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(words), "{words}: {said}");
    }
}
