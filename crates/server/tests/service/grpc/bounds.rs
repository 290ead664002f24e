//! What a client can do wrong, or too much of.

use std::time::Duration;

use futures_util::future::join_all;
use spile_testkit::wait::PATIENCE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

use super::client::{OK, OVER_LIMIT};
use super::{RULES, client, config, edge, start};
use crate::support::Spile;

#[tokio::test]
async fn a_message_of_every_size_that_envoy_can_send_is_limited() {
    let spile = start().await;
    let client = client(&spile).await;
    // Envoy takes 60 KiB of headers, and each descriptor may hold all of them.
    let large = "x".repeat(60 * 1024);
    let descriptor: &[(&str, &str)] = &[("remote_address", &large)];
    let thirty_two = vec![descriptor; 32];
    assert_eq!(client.ask(edge(&thirty_two[..1])).await.told(), (OK, vec![(OK, 9)]));
    assert_eq!(client.ask(edge(&thirty_two)).await.overall_code, OVER_LIMIT, "32 of the 9 that are left");
    for _ in 0..9 {
        assert_eq!(client.ask(edge(&thirty_two[..1])).await.overall_code, OK);
    }
    assert_eq!(client.ask(edge(&thirty_two[..1])).await.overall_code, OVER_LIMIT);
}

#[tokio::test]
async fn what_cannot_be_read_never_passes_and_is_counted() {
    let spile = start().await;
    let client = client(&spile).await;
    // An error would let the request pass: Envoy does so unless it is told otherwise.
    let large = "x".repeat(3 * 1024 * 1024);
    assert_eq!(client.ask(edge(&[&[("remote_address", &large)]])).await.overall_code, OVER_LIMIT);
    let unreadable = client.ask_bytes(b"\x0a\xff\xff\xff\xff\x0f").await.expect("an answer");
    assert_eq!(unreadable.overall_code, OVER_LIMIT);
    assert_eq!(
        client.ask(edge(&[&[("remote_address", "::1")]])).await.overall_code,
        OK,
        "the connection goes on"
    );
    let metrics = spile.admin("/metrics").await.text;
    assert!(
        metrics.contains("rpc_server_requests_total{listener=\"grpc\",result=\"unreadable\"} 2"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_value_of_any_bytes_is_a_key_like_any_other() {
    let spile = start().await;
    let client = client(&spile).await;
    let bob = |value: &[u8]| {
        edge(&[&[("remote_address", "")]]).with(|descriptor| {
            descriptor.entries[0].value = value.to_vec();
        })
    };
    for left in (0..10).rev() {
        assert_eq!(client.ask(bob(b"bob\xff")).await.told(), (OK, vec![(OK, left)]));
    }
    assert_eq!(client.ask(bob(b"bob\xff")).await.overall_code, OVER_LIMIT);
    assert_eq!(client.ask(bob(b"bob\xfe")).await.overall_code, OK, "other bytes are another key");
}

#[tokio::test]
async fn a_request_with_too_many_descriptors_costs_nobody_anything() {
    let spile = start().await;
    let client = client(&spile).await;
    let addresses: Vec<String> = (0..40).map(|number| format!("10.0.0.{number}")).collect();
    let entries: Vec<[(&str, &str); 1]> =
        addresses.iter().map(|address| [("remote_address", address.as_str())]).collect();
    let descriptors: Vec<&[(&str, &str)]> = entries.iter().map(<[_; 1]>::as_slice).collect();
    let refused = client.try_ask(edge(&descriptors[..33])).await.expect_err("it is refused");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(refused.message(), "descriptors: there are 33; a request takes at most 32");
    // Each of these has two limits, and one rule only watches.
    let apis: Vec<[(&str, &str); 1]> =
        ["/api/1", "/api/2", "/api/3"].iter().map(|path| [("path", *path)]).collect();
    let apis = apis.iter().map(<[_; 1]>::as_slice);
    let many: Vec<&[(&str, &str)]> = apis.chain(descriptors[..29].iter().copied()).collect();
    assert_eq!(client.ask(edge(&many)).await.overall_code, OVER_LIMIT, "an error would let it pass");
    let (_, statuses) = client.ask(edge(&[descriptors[0], descriptors[1]])).await.told();
    assert_eq!(statuses, [(OK, 9), (OK, 9)], "neither was charged before");
}

#[tokio::test]
async fn more_requests_at_once_than_a_connection_takes_wait_for_each_other() {
    let spile = start().await;
    let client = client(&spile).await;
    let ask = |number: u32| {
        let (client, value) = (client.clone(), number.to_string());
        async move { client.ask(edge(&[&[("remote_address", &value)]])).await.overall_code }
    };
    let codes = join_all((0..1_000).map(ask)).await;
    assert!(codes.iter().all(|code| *code == OK));
}

#[tokio::test]
async fn http_1_is_not_spoken() {
    let spile = start().await;
    let mut stranger = TcpStream::connect(spile.grpc.expect("the listener is on")).await.expect("it listens");
    stranger.write_all(b"GET / HTTP/1.1\r\nhost: spile\r\n\r\n").await.expect("it reads");
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, stranger.read_to_end(&mut answer)).await;
    let _end_or_reset = ended.expect("it is sent away");
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", answer.escape_ascii());
}

#[tokio::test]
async fn whoever_says_nothing_is_sent_away() {
    let mut config = config(RULES);
    config.listen.bounds.header_timeout = Duration::from_millis(200);
    let spile = Spile::start_with(config).await;
    let mut silent = TcpStream::connect(spile.grpc.expect("the listener is on")).await.expect("it listens");
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut answer)).await;
    let _end_or_reset = ended.expect("it is sent away");
}
