//! One way in: whatever a listener is for, a client can take no more of it than its bounds allow.

mod bounds;
mod descriptors;
mod draining;
mod guesses;
mod memory;
mod tls;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use spile_server::Config;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::support::Spile;

/// A server with every listener on.
async fn everything(settings: &str) -> Spile {
    let text = format!(
        "unmatched = \"pass\"\n{settings}\n\
         [[routes]]\npath = \"/\"\nupstream = \"http://127.0.0.1:1\"\n"
    );
    let mut config = Config::parse(Path::new("spile.toml"), text, []).expect("it works");
    let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    (config.listen.grpc, config.listen.resp, config.listen.gateway) = (any, any, any);
    Spile::start_with(config).await
}

/// The listeners that speak HTTP/2, each with a path that is answered.
fn http2_doors(spile: &Spile) -> [(&'static str, SocketAddr, &'static str); 4] {
    [
        ("http", spile.http, "/nowhere"),
        ("admin", spile.admin, "/metrics"),
        ("grpc", spile.grpc.expect("it is on"), "/grpc.health.v1.Health/Check"),
        ("gateway", spile.gateway.expect("it is on"), "/"),
    ]
}

/// A connection over HTTP/2 whose streams have room for this many bytes, and what resolves when it ends.
async fn http2(address: SocketAddr, window: u32) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let mut settings = h2::client::Builder::new();
    // Answers that are not read may be many and small.
    settings.initial_window_size(window).data_frame_budget(1 << 20);
    let (client, connection) = settings.handshake::<_, Bytes>(stream).await.expect("HTTP/2");
    (client, tokio::spawn(connection))
}

/// Short times, so that a test need not wait for long ones.
const HASTE: &str = "[listen]\nheader_timeout = \"300ms\"\nwrite_timeout = \"300ms\"\n\
    [gateway]\nheader_timeout = \"300ms\"\nwrite_timeout = \"300ms\"\n";

/// What a busy machine may add to them.
const PATIENCE: Duration = Duration::from_secs(20);
