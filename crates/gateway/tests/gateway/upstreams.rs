//! Upstreams of every kind: sockets in the file system, and names with several addresses.

use std::path::Path;
use std::time::Duration;

use http::uri::PathAndQuery;
use spile_gateway::{HealthCheck, Upstream};

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
