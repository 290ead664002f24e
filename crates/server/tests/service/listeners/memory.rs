//! What clients that announce much and send little cost the process.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;

use super::http2;
use crate::support::Process;

const CONNECTIONS: usize = 3;
const STREAMS: usize = 199;

/// Calls on every stream of a connection but one, with a message that is announced as this long and does not come. Gives
/// what holds them, once the server has seen all of them.
async fn announce(address: SocketAddr, path: &'static str, length: u32) -> impl Sized {
    let (mut client, connection) = http2(address, 65_535).await;
    let mut held = Vec::new();
    for _ in 0..STREAMS {
        held.push(call(&mut client, path, length, false).await);
    }
    // Frames are read in their order, so that these have been once this is answered.
    let (answer, body) = call(&mut client, "/grpc.health.v1.Health/Check", 0, true).await;
    answer.await.expect("an answer");
    (client, connection, held, body)
}

async fn call(
    client: &mut SendRequest<Bytes>,
    path: &str,
    length: u32,
    whole: bool,
) -> (ResponseFuture, SendStream<Bytes>) {
    *client = client.clone().ready().await.expect("a stream");
    let request = Request::post(format!("http://127.0.0.1{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a request");
    let (answer, mut body) = client.send_request(request, false).expect("a stream");
    let message = if whole { &b""[..] } else { b"some" };
    let prefix = [&[0][..], &length.to_be_bytes(), message].concat();
    body.send_data(Bytes::from(prefix), whole).expect("it reads");
    (answer, body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_announced_and_do_not_come_cost_next_to_nothing() {
    let spile = Process::serve(&["--grpc", "127.0.0.1:0"]);
    let address: SocketAddr = spile.address("grpc").parse().expect("an address");
    let before = spile.memory_mb();
    let paths = [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    ];
    for path in paths {
        // Under each service's own bound, and far above it.
        for length in [4_000, 2 << 20, 4 << 20, u32::MAX] {
            let all = async {
                let mut held = Vec::new();
                for _ in 0..CONNECTIONS {
                    held.push(announce(address, path, length).await);
                }
                assert_eq!(held.len(), CONNECTIONS);
                // While they are held.
                let grown = spile.memory_mb().saturating_sub(before);
                assert!(grown < 150, "{length} bytes announced to {path} took {grown} MB");
            };
            // Room for all of each message would be 1,200 MB.
            let most = spile.most_memory_mb_until(all).await.expect("calls are seen");
            let grown = most.saturating_sub(before);
            assert!(grown < 150, "{length} bytes announced to {path} took {grown} MB");
        }
    }
}
