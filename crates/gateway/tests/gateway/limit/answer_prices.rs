//! The price of answers that do not report their cost: the route sets it, and nothing that a client sends makes it less.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use spile_gateway::{Route, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::answer_costs::{Budget, DELTA, EVENTS, RULE_COST, Scripted, answer, chunk, event, usage};
use crate::support::{Backend, RawBackend, in_time, read_until, text, to};

/// Bytes of an answer that costs 2,000 tokens at the usual price.
const SIZE: usize = 8_000;

/// The header fields of an answer.
type Fields = &'static [(&'static str, &'static str)];

fn estimated(route: Route) -> Route {
    route.estimate("500".parse().unwrap())
}

/// An answer of [`SIZE`] bytes with this status, which starts with these bytes.
fn large(status: u16, fields: Fields, start: &[u8]) -> Response<Full<Bytes>> {
    let mut body = start.to_vec();
    body.resize(SIZE, b' ');
    let mut response = text(body);
    *response.status_mut() = status.try_into().unwrap();
    for (name, value) in fields {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}

#[tokio::test]
async fn an_answer_whose_cost_cannot_be_read_costs_its_size_or_the_estimate_whichever_is_more() {
    const JSON: (&str, &str) = ("content-type", "application/json");
    const STREAM: (&str, &str) = ("content-type", "text/event-stream");
    let answers: [(u16, Fields, &'static [u8]); 7] = [
        (200, &[JSON], b"{\"usage\":{\"prompt_tokens\":5}}"),
        (200, &[JSON], b"{\"usage\":{\"total_tokens\":\"5\"}}"),
        (200, &[JSON], b"not JSON"),
        (200, &[JSON, ("content-encoding", "gzip")], b"\x1f\x8b"),
        (200, &[STREAM], b"data: {\"choices\":[],\"usage\":null}\n\n"),
        (200, &[("content-type", "text/html")], b"<html>"),
        (206, &[JSON, ("content-range", "bytes 0-7999/90000")], b"{\"usage\":{\"total_tokens\":5}}"),
    ];
    for (status, fields, start) in answers {
        let backend = Backend::start(move |_| large(status, fields, start)).await;
        for (unread, tokens) in [
            (None, 2_000),
            (Some("bytes/10"), 800),
            (Some("bytes/100"), 500),
            (Some("700"), 700),
            (Some("estimate"), 500),
        ] {
            let mut route = estimated(to(backend.upstream()));
            if let Some(unread) = unread {
                route = route.unread_cost(unread.parse().unwrap());
            }
            let budget = Budget::on(route, "openai").await;
            assert_eq!(budget.gateway.get("/", &[]).await.body.len(), SIZE);
            budget.comes_to(tokens).await;
        }
    }
}

#[tokio::test]
async fn a_stream_without_usage_costs_its_size_whether_it_ends_breaks_off_or_loses_its_client() {
    for end in ["ends", "breaks off", "loses its client"] {
        let mut upstream = Scripted::start().await;
        let budget = Budget::on(estimated(to(upstream.backend.upstream())), "openai").await;
        let mut client = Some(budget.ask().await);
        upstream.is_asked().await;
        upstream.say(EVENTS);
        let data = "x".repeat(1_000 - event("").len());
        for number in 0..8 {
            upstream.say_event(&data);
            if let Some(client) = &mut client {
                read_until(client, &chunk(&event(&data))).await;
            }
            client = client.filter(|_| number < 3 || end != "loses its client");
        }
        if end != "breaks off" {
            upstream.say("0\r\n\r\n");
        }
        drop(upstream);
        budget.comes_to(2_000).await;
    }
}

#[tokio::test]
async fn tokens_of_a_cache_are_paid() {
    const WHOLE: &str = r#"{"type":"message","usage":{"input_tokens":4,"cache_creation_input_tokens":900,
        "cache_read_input_tokens":5000,"output_tokens":96}}"#;
    let backend = Backend::start(|_| answer("application/json", WHOLE)).await;
    let budget = Budget::on(estimated(to(backend.upstream())), "anthropic").await;
    budget.gateway.get("/", &[]).await;
    budget.comes_to(6_000).await;
}

#[tokio::test]
async fn a_request_without_a_body_to_read_costs_the_estimate() {
    let answers: [(&str, u16); 4] = [("HEAD", 200), ("GET", 204), ("GET", 304), ("GET", 302)];
    for (method, status) in answers {
        let backend = Backend::start(move |_| {
            let mut response = Response::new(Full::default());
            *response.status_mut() = status.try_into().unwrap();
            response
        })
        .await;
        let budget = Budget::on(estimated(to(backend.upstream())), "openai").await;
        assert_eq!(budget.gateway.client().await.ask(method, "/", &[], "").await.status, status);
        budget.counts("no_number").await;
        assert_eq!(budget.spent().await, 500, "{method} {status}");
    }
}

const CONDITIONS: [(&str, &str); 8] = [
    ("if-none-match", "*"),
    ("if-match", "\"a\""),
    ("if-modified-since", "Mon, 01 Jan 2024 00:00:00 GMT"),
    ("if-unmodified-since", "Mon, 01 Jan 2024 00:00:00 GMT"),
    ("if-range", "\"a\""),
    ("range", "bytes=0-0"),
    ("if_none_match", "*"),
    ("accept-encoding", "gzip"),
];

#[tokio::test]
async fn a_client_cannot_ask_for_less_than_the_whole_answer() {
    let backend = Backend::start(|_| answer("application/json", r#"{"usage":{"total_tokens":900}}"#)).await;
    let budget = Budget::on(estimated(to(backend.upstream())), "openai").await;
    assert_eq!(budget.gateway.get("/", &CONDITIONS).await.status, 200);
    let seen = backend.last();
    for (name, _) in CONDITIONS {
        let expected = (name == "accept-encoding").then_some("identity");
        assert_eq!(seen.header(name), expected, "{name}");
    }
    assert_eq!(budget.spent().await, 900);

    let budget = Budget::on(to(backend.upstream()), "header:x-cost").await;
    budget.gateway.get("/", &CONDITIONS).await;
    let seen = backend.last();
    for (name, value) in CONDITIONS {
        assert_eq!(seen.header(name), Some(value), "a cost in the header does not need the body");
    }
}

#[tokio::test]
async fn an_error_costs_what_its_rule_says_unless_it_reports_a_cost() {
    let rule = RULE_COST.amount().whole_tokens();
    for status in [400_u16, 401, 404, 429, 500, 503] {
        let backend =
            Backend::start(move |_| large(status, &[], b"{\"error\":{\"type\":\"overloaded\"}}")).await;
        for (cost, tokens) in [(None, rule), (Some("rule"), rule), (Some("none"), 0), (Some("estimate"), 500)]
        {
            for source in ["openai", "header:x-cost"] {
                let mut route = estimated(to(backend.upstream()));
                if let Some(cost) = cost {
                    route = route.error_cost(cost.parse().unwrap());
                }
                let budget = Budget::on(route, source).await;
                assert_eq!(budget.gateway.get("/", &[]).await.status, status);
                budget.counts("error").await;
                assert_eq!(budget.spent().await, tokens, "{status} {cost:?} {source}");
            }
        }
        let reports = Backend::start(move |_| large(status, &[], b"{\"usage\":{\"total_tokens\":40}}")).await;
        let budget = Budget::on(estimated(to(reports.upstream())), "openai").await;
        budget.gateway.get("/", &[]).await;
        budget.comes_to(40).await;
    }
}

#[tokio::test]
async fn a_request_that_no_upstream_has_run_costs_what_its_rule_says_and_one_that_may_have_run_the_estimate()
{
    let closed = "http://127.0.0.1:1".parse().unwrap();
    let rule = RULE_COST.amount().whole_tokens();
    let budget = Budget::on(estimated(to(closed)), "openai").await;
    assert_eq!(budget.gateway.get("/", &[]).await.status, 502);
    budget.comes_to(rule).await;

    let backend = Backend::friendly().await;
    let budget = Budget::on(estimated(to(backend.upstream())).max_body(5), "openai").await;
    let refused = budget.gateway.client().await.ask("POST", "/", &[], "too large").await;
    assert_eq!((refused.status.as_u16(), backend.seen().len()), (413, 0));
    budget.comes_to(rule).await;

    let mut silent = Scripted::start().await;
    let mut timeouts = Timeouts::default();
    timeouts.first_byte = Duration::from_millis(50);
    let route = estimated(to(silent.backend.upstream())).timeouts(timeouts);
    let budget = Budget::within(route, "openai", |builder| builder).await;
    assert_eq!(budget.gateway.get("/", &[]).await.status, 504);
    silent.is_asked().await;
    budget.counts("no_answer").await;
    assert_eq!(budget.spent().await, 500);
}

#[tokio::test]
async fn a_route_that_refuses_its_caller_charges_what_the_rule_says() {
    let backend = Backend::friendly().await;
    let budget = Budget::on(estimated(to(backend.upstream())).require_auth(true), "openai").await;
    assert_eq!(budget.gateway.get("/", &[]).await.status, 401);
    assert_eq!(budget.spent().await, RULE_COST.amount().whole_tokens());
}

/// An upstream that switches to a protocol in which it sends back everything, and hangs up after `bye`.
async fn echoing() -> RawBackend {
    RawBackend::start(|mut stream| async move {
        read_until(&mut stream, "\r\n\r\n").await;
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(switch).await.unwrap();
        let mut bytes = [0; 4_096];
        while let Ok(count @ 1..) = stream.read(&mut bytes).await {
            if bytes[..count].ends_with(b"bye") || stream.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    })
    .await
}

async fn upgrade(budget: &Budget) -> (TcpStream, String) {
    let mut client = TcpStream::connect(budget.gateway.address).await.unwrap();
    let asks = b"GET / HTTP/1.1\r\nHost: g\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(asks).await.unwrap();
    let head = read_until(&mut client, "\r\n\r\n").await;
    (client, head)
}

#[tokio::test]
async fn an_upgrade_that_has_no_price_is_refused_and_costs_nothing() {
    let backend = Backend::friendly().await;
    for source in ["openai", "header:x-cost"] {
        let budget = Budget::on(estimated(to(backend.upstream())), source).await;
        let (mut client, head) = upgrade(&budget).await;
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        read_until(&mut client, "has no upgrade_cost\"}").await;
        assert_eq!((budget.spent().await, backend.seen().len()), (0, 0));
    }
}

#[tokio::test]
async fn the_bytes_of_an_upgraded_connection_are_paid_whoever_ends_it() {
    let backend = echoing().await;
    for (bytes, ends, tokens) in
        [(4_000, "client", 2_000), (4_000, "upstream", 2_001), (400, "client", 500), (0, "client", 500)]
    {
        let route = estimated(to(backend.upstream())).upgrade_cost("bytes/4".parse().unwrap());
        let budget = Budget::on(route, "openai").await;
        let (mut client, head) = upgrade(&budget).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        client.write_all(&vec![b'x'; bytes]).await.unwrap();
        in_time("the echo", client.read_exact(&mut vec![0; bytes])).await.unwrap();
        assert_eq!(budget.spent().await, 500, "the estimate, while it is open");
        if ends == "upstream" {
            client.write_all(b"bye").await.unwrap();
            assert_eq!(in_time("the end", client.read(&mut [0])).await.unwrap(), 0);
        }
        drop(client);
        budget.counts("settled").await;
        assert_eq!(budget.spent().await, tokens, "{bytes} bytes, ended by the {ends}");
    }
}

#[tokio::test]
async fn a_stream_that_reports_its_cost_costs_that_whatever_its_size_is() {
    let mut upstream = Scripted::start().await;
    let budget = Budget::on(estimated(to(upstream.backend.upstream())), "openai").await;
    let mut client = budget.ask().await;
    upstream.is_asked().await;
    upstream.say(EVENTS);
    (0..100).for_each(|_| upstream.say_event(DELTA));
    upstream.say_event(&usage(30));
    upstream.say("0\r\n\r\n");
    read_until(&mut client, "0\r\n\r\n").await;
    assert_eq!(budget.spent().await, 30);
}
