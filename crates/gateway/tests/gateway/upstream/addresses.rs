//! Addresses of upstreams: Unix sockets, and names with several addresses.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use parking_lot::Mutex;
use spile_gateway::{HealthCheck, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{Backend, exchange, open, running, text, to, until};

fn at(scheme: &str, socket: &Path) -> Upstream {
    format!("{scheme}:{}", socket.display()).parse().unwrap()
}

#[tokio::test]
async fn a_socket_in_the_file_system_is_an_upstream_over_either_version() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("app.sock");
    let backend = Backend::start(|seen| text(seen.body.clone())).await;
    backend.listen_on(&socket);

    let gateway = running(open(to(at("unix", &socket)))).await;
    let mut client = gateway.client().await;
    for body in ["one", "two"] {
        assert_eq!(client.ask("POST", "/a", &[], body).await.body, body);
        assert_eq!(backend.last().header("host"), Some("gateway.test"), "the client's own");
    }
    exchange(gateway.address, b"GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(backend.last().header("host"), Some("localhost"), "the client named none");

    let gateway = running(open(to(at("h2c+unix", &socket)))).await;
    assert_eq!(gateway.client().await.ask("POST", "/b", &[], "three").await.body, "three");
    assert_eq!(backend.last().target, "http://localhost/b");
    assert_eq!(backend.last().header("x-forwarded-host"), Some("gateway.test"));
}

#[tokio::test]
async fn a_socket_that_is_not_there_yet_is_a_502_until_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("app.sock");
    let backend = Backend::friendly().await;
    let gateway = running(open(to(at("unix", &socket)))).await;
    assert_eq!(gateway.get("/", &[]).await.status, 502);
    backend.listen_on(&socket);
    assert_eq!(gateway.get("/", &[]).await.status, 200);
}

#[tokio::test]
async fn upstreams_on_sockets_are_checked_too() {
    for scheme in ["unix", "h2c+unix"] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("app.sock");
        let backend = Backend::friendly().await;
        backend.listen_on(&socket);
        let mut check = HealthCheck::new(PathAndQuery::from_static("/health"));
        check.interval = Duration::from_millis(10);
        let _gateway = running(open(to(at(scheme, &socket)).health_check(check))).await;
        until("a check", || async { backend.seen().iter().any(|seen| seen.target.ends_with("/health")) })
            .await;
        let seen = backend.last();
        assert!(seen.header("host") == Some("localhost") || seen.target == "http://localhost/health");
    }
}

/// Responds once on each connection, and records the address that it came to.
fn answer_once(listener: TcpListener, used: &Arc<Mutex<HashSet<IpAddr>>>) {
    let used = Arc::clone(used);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            used.lock().insert(stream.local_addr().unwrap().ip());
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap_or(b'\n'));
            }
            let _answered = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await;
        }
    });
}

#[tokio::test]
async fn every_address_of_localhost_gets_connections_and_one_is_enough() {
    let known = tokio::net::lookup_host("localhost:0").await.unwrap();
    let known: HashSet<IpAddr> = known.map(|address| address.ip()).collect();
    for hosts in [
        vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        vec![IpAddr::from(Ipv4Addr::LOCALHOST)],
    ] {
        let (mut port, mut listening, used) = (0, HashSet::new(), Arc::default());
        // A machine without IPv6 has only one address.
        for host in hosts {
            if let Ok(listener) = TcpListener::bind((host, port)).await {
                port = listener.local_addr().unwrap().port();
                listening.insert(host);
                answer_once(listener, &used);
            }
        }
        let gateway = running(open(to(format!("http://localhost:{port}").parse().unwrap()))).await;
        for _ in 0..20 {
            assert_eq!(gateway.get("/", &[]).await.status, 200);
        }
        assert_eq!(*used.lock(), listening.intersection(&known).copied().collect());
    }
}
