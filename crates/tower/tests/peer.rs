//! A layer that needs the client's address, behind a server that does not tell it.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use common::{from_user, limiter};
use http::{Request, Response};
use parking_lot::Mutex;
use spile_tower::key::{ClientIp, Fixed, KeyResolver, PathKey, TenantKey};
use spile_tower::{RateLimitLayer, Rule};
use tower::{Layer, ServiceExt, service_fn};
use tracing_subscriber::fmt::MakeWriter;

mod common;

/// Log lines, for a test to read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What is logged while a layer with this key handles the requests that `request` makes, three of them.
async fn logged(key: impl KeyResolver + 'static, request: impl Fn() -> Request<()>) -> String {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let layer = RateLimitLayer::builder(limiter(), Rule::new(key, "large")).name("api").build().unwrap();
    for _ in 0..3 {
        let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Bytes::new())) });
        layer.layer(service).oneshot(request()).await.unwrap();
    }
    let bytes = log.0.lock().clone();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_tell_the_peer_is_told_so_once_and_what_to_do() {
    let without_peer = || Request::new(());
    let keys: [Box<dyn KeyResolver>; 4] = [
        Box::new(ClientIp::direct()),
        Box::new(TenantKey.or(ClientIp::direct())),
        Box::new(ClientIp::direct().or(Fixed::new("everyone"))),
        Box::new(ClientIp::direct().and(PathKey)),
    ];
    for key in keys {
        let log = logged(key, without_peer).await;
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("ERROR") && log.contains("api"), "{log}");
        assert!(log.contains("into_make_service_with_connect_info"), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_the_peer_and_a_layer_that_does_not_need_it_are_left_in_peace() {
    assert_eq!(logged(ClientIp::direct(), || from_user("ann")).await, "");
    assert_eq!(logged(PathKey, || Request::new(())).await, "");
}
