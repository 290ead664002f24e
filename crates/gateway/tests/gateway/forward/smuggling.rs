//! Request smuggling: no upstream ever sees a request that the gateway has not seen.

use std::time::Duration;

use spile_gateway::{Bounds, Timeouts, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Backend, LaxBackend, Running, exchange, in_time, open, running, to};

/// Each holds a second request that only a confused server would find.
const CORPUS: &[(&str, &str)] = &[
    (
        "CL.TE",
        "POST /a HTTP/1.1\r\nHost: g\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "TE.CL",
        "POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n24\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "TE.TE identity",
        "POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: 4\r\n\r\n24\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "TE xchunked",
        "POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: xchunked\r\nContent-Length: 4\r\n\r\n24\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "TE with a tab",
        "POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding:\tchunked\r\nContent-Length: 4\r\n\r\n24\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "TE before a colon with a space",
        "POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding : chunked\r\nContent-Length: 4\r\n\r\n24\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "TE in HTTP/1.0",
        "POST /a HTTP/1.0\r\nHost: g\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n24\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "two lengths",
        "POST /a HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\nContent-Length: 36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a list of lengths",
        "POST /a HTTP/1.1\r\nHost: g\r\nContent-Length: 0, 36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a signed length",
        "POST /a HTTP/1.1\r\nHost: g\r\nContent-Length: +36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a length in hexadecimal",
        "POST /a HTTP/1.1\r\nHost: g\r\nContent-Length: 0x24\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a negative length",
        "POST /a HTTP/1.1\r\nHost: g\r\nContent-Length: -1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a folded line",
        "POST /a HTTP/1.1\r\nHost: g\r\nX: a\r\n Content-Length: 36\r\nContent-Length: 36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a folded length",
        "POST /a HTTP/1.1\r\nHost: g\r\nContent-Length:\r\n 36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "bare line feeds",
        "POST /a HTTP/1.1\nHost: g\nContent-Length: 36\n\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a bare line feed in a value",
        "POST /a HTTP/1.1\r\nHost: g\r\nX: a\nContent-Length: 36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a bare carriage return",
        "POST /a HTTP/1.1\r\nHost: g\r\nX: a\rContent-Length: 0\r\nContent-Length: 36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a null byte",
        "POST /a HTTP/1.1\r\nHost: g\r\nContent-Length: 36\0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a chunk extension",
        "POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n24;ext=\"x\"\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "a chunk extension with a line feed",
        "POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n24;a\nb\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "a chunk size that overflows",
        "POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000024\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "a trailer of length",
        "POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n24\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\nContent-Length: 3\r\n\r\n",
    ),
    (
        "two hosts",
        "POST /a HTTP/1.1\r\nHost: g\r\nHost: h\r\nContent-Length: 36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a length that the connection names",
        "POST /a HTTP/1.1\r\nHost: g\r\nConnection: content-length\r\nContent-Length: 36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
    (
        "a length with an underscore",
        "POST /a HTTP/1.1\r\nHost: g\r\nContent_Length: 0\r\nContent-Length: 36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    ),
];

/// A gateway that soon closes connections with an incomplete request.
async fn impatient(upstream: Upstream) -> Running {
    let soon = Duration::from_millis(300);
    let mut bounds = Bounds::default();
    bounds.header_timeout = soon;
    let mut timeouts = Timeouts::default();
    timeouts.idle = soon;
    timeouts.first_byte = soon;
    running(open(to(upstream).timeouts(timeouts)).bounds(bounds)).await
}

fn allowed_answers(answer: &str) -> usize {
    answer.matches("HTTP/1.1 200").count() + answer.matches("HTTP/1.0 200").count()
}

#[tokio::test]
async fn a_strict_upstream_never_sees_a_request_that_the_gateway_has_not() {
    for (name, bytes) in CORPUS {
        let backend = Backend::friendly().await;
        let gateway = impatient(backend.upstream()).await;
        let answer = exchange(gateway.address, bytes.as_bytes()).await;
        let targets: Vec<_> = backend.seen().into_iter().map(|seen| seen.target).collect();
        assert!(!targets.iter().any(|target| target.contains("smuggled")), "{name}: {targets:?}");
        assert!(
            targets.len() <= 1 && allowed_answers(&answer) <= targets.len(),
            "{name}: {targets:?} {answer}"
        );
    }
}

#[tokio::test]
async fn a_lax_upstream_never_sees_a_request_that_the_gateway_has_not() {
    for (name, bytes) in CORPUS {
        let backend = LaxBackend::start().await;
        let gateway = impatient(backend.upstream()).await;
        let answer = exchange(gateway.address, bytes.as_bytes()).await;
        let seen = backend.seen();
        assert!(!seen.iter().any(|header| header.starts_with("GET /smuggled")), "{name}: {seen:?}");
        assert!(seen.len() <= 1 && allowed_answers(&answer) <= seen.len(), "{name}: {seen:?} {answer}");
        for header in &seen {
            let lower = header.to_ascii_lowercase();
            let framings =
                lower.matches("content-length:").count() + lower.matches("transfer-encoding:").count();
            assert!(framings <= 1, "{name}: one framing at most goes upstream: {header}");
            assert!(!lower.contains("content_length"), "{name}: {header}");
        }
    }
}

/// The requests of the corpus whose end is given twice, in a form that hyper itself accepts.
const TWO_FRAMINGS: [&str; 3] = ["CL.TE", "TE.CL", "TE with a tab"];

#[tokio::test]
async fn a_request_with_two_framings_is_refused_and_its_connection_closed() {
    let backend = LaxBackend::start().await;
    let gateway = impatient(backend.upstream()).await;
    for (name, bytes) in CORPUS.iter().filter(|(name, _)| TWO_FRAMINGS.contains(name)) {
        let answer = exchange(gateway.address, bytes.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{name}: {answer}");
        assert!(answer.contains("both Content-Length and Transfer-Encoding"), "{name}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{name}: nothing after it is answered: {answer}");
    }
    assert!(backend.seen().is_empty(), "{:?}", backend.seen());
}

#[tokio::test]
async fn requests_before_one_with_two_framings_are_served() {
    let backend = Backend::friendly().await;
    let gateway = impatient(backend.upstream()).await;
    let before = "POST /one HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\nhi\
        POST /two HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n19\r\nContent-Length: 4\r\n\r\n\r\n\r\n\r\n0\r\n\r\n";
    let answer = exchange(gateway.address, format!("{before}{}", CORPUS[0].1).as_bytes()).await;
    let targets: Vec<_> = backend.seen().into_iter().map(|seen| seen.target).collect();
    assert_eq!(targets, ["/one", "/two"], "{answer}");
    assert_eq!((allowed_answers(&answer), answer.matches("HTTP/1.1 400").count()), (2, 1), "{answer}");
}

/// The statuses of the responses to these bytes, over connections on which they arrive in different pieces.
async fn statuses(gateway: &Running, request: &str) -> Vec<String> {
    let mut statuses = Vec::new();
    for piece in [request.len(), 1] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in request.as_bytes().chunks(piece) {
            if stream.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let mut answer = Vec::new();
        let _ended = in_time("the gateway to hang up", stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        statuses.extend(answer.match_indices("HTTP/1.").map(|(at, _)| answer[at + 9..at + 12].to_owned()));
    }
    statuses
}

#[tokio::test]
async fn a_body_in_any_coding_but_chunked_is_refused_and_its_connection_closed() {
    let backend = Backend::friendly().await;
    let gateway = impatient(backend.upstream()).await;
    let long = format!("{}gzip, chunked", " ".repeat(200));
    for (version, codings) in [
        ("1.1", &["gzip, chunked"][..]),
        ("1.1", &["identity"]),
        ("1.1", &["chunked, chunked"]),
        ("1.1", &["chunked, identity"]),
        ("1.1", &["chunked;x=y"]),
        ("1.1", &[", chunked"]),
        ("1.1", &[""]),
        ("1.1", &["", "chunked"]),
        ("1.1", &["gzip", "chunked"]),
        ("1.1", &["chunked", "chunked"]),
        ("1.1", &[&long]),
        ("1.0", &["chunked"]),
        ("1.0", &["identity"]),
    ] {
        let codings: Vec<_> =
            codings.iter().map(|coding| format!("Transfer-Encoding: {coding}\r\n")).collect();
        let codings = codings.concat();
        let request = format!(
            "POST / HTTP/{version}\r\nHost: g\r\nConnection: keep-alive\r\n{codings}\r\n2\r\nok\r\n0\r\n\r\n\
             GET /next HTTP/1.1\r\nHost: g\r\n\r\n"
        );
        assert_eq!(statuses(&gateway, &request).await, ["400", "400"], "{request}");
    }
    assert!(backend.seen().is_empty(), "{:?}", backend.seen());
    let sound = "POST / HTTP/1.1\r\nHost: g\r\nConnection: close\r\nTransfer-Encoding: \tCHUNKED \r\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert_eq!(statuses(&gateway, sound).await, ["200", "200"]);
}

#[tokio::test]
async fn whatever_a_length_says_beside_a_coding_it_is_refused_and_the_connection_closed() {
    let backend = Backend::friendly().await;
    let gateway = impatient(backend.upstream()).await;
    let blanks = " ".repeat(200);
    for length in ["abc", "5, 5", "", "+5", "-1", "0x5", "0", &format!("{blanks}5"), &format!("5{blanks}")] {
        for name in ["Content-Length", "content-length", "CONTENT-LENGTH ", "Content-Length\t"] {
            let coding = "Transfer-Encoding: chunked\r\n";
            let length = format!("{name}: {length}\r\n");
            for fields in [format!("{coding}{length}"), format!("{length}{coding}")] {
                let request = format!(
                    "POST / HTTP/1.1\r\nHost: g\r\n{fields}\r\n2\r\nok\r\n0\r\n\r\nGET /next HTTP/1.1\r\nHost: g\r\n\r\n"
                );
                assert_eq!(statuses(&gateway, &request).await, ["400", "400"], "{request}");
            }
        }
    }
    assert!(backend.seen().is_empty(), "{:?}", backend.seen());
}
