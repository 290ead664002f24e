//! What clients that announce much and send little cost the process.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use spile_testkit::wait;

use super::http2;
use crate::support::Process;

const CONNECTIONS: usize = 3;
const STREAMS: usize = 199;

/// Calls on every stream of a connection, with a message that is announced as this long and never comes. Resolves once
/// the server has ended all of them.
async fn announce(address: std::net::SocketAddr, path: &'static str, length: u32) {
    let (mut client, _connection) = http2(address, 65_535).await;
    let mut answers = Vec::new();
    let mut bodies = Vec::new();
    for _ in 0..STREAMS {
        client = client.ready().await.expect("a stream");
        let request = Request::post(format!("http://127.0.0.1{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("a request");
        let (answer, mut body) = client.send_request(request, false).expect("a stream");
        let prefix = [&[0][..], &length.to_be_bytes(), b"some"].concat();
        body.send_data(Bytes::from(prefix), false).expect("it reads");
        answers.push(answer);
        bodies.push(body);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(bodies);
}

fn rss_mb(spile: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", spile.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_announced_and_do_not_come_cost_next_to_nothing() {
    let spile = Process::serve(&["--grpc", "127.0.0.1:0"]);
    let address: std::net::SocketAddr = spile.address("grpc").parse().expect("an address");
    let before = rss_mb(&spile);
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
            let all: Vec<_> =
                (0..CONNECTIONS).map(|_| tokio::spawn(announce(address, path, length))).collect();
            let mut most = 0;
            let ended = async {
                for one in all {
                    one.await.expect("it ends");
                }
            };
            let watched = async {
                loop {
                    most = most.max(rss_mb(&spile));
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::select! {
                () = ended => {}
                () = watched => {}
                () = tokio::time::sleep(wait::PATIENCE) => panic!("calls to {path} are kept"),
            }
            // Room for all of each message would be 1,200 MB.
            let grown = most.saturating_sub(before);
            assert!(grown < 60, "{length} bytes announced to {path} took {grown} MB");
        }
    }
}
