//! Ambiguous responses: whatever an upstream sends, no client gets a response that was meant for another, and an
//! incomplete response never looks complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use crate::support::{RawBackend, exchange, in_time, open, running, to};

const FRESH: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfresh";
/// A response that must not be taken for that to the next request.
const SMUGGLED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nsmuggled";

async fn read_until(stream: &mut TcpStream, end: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        bytes.push(stream.read_u8().await.ok()?);
    }
    Some(bytes)
}

/// Sends this text on its first connection and leaves it open. Responds correctly on all others.
async fn tricky(words: String) -> RawBackend {
    let connections = Arc::new(AtomicUsize::new(0));
    RawBackend::start(move |mut stream| {
        let (first, words) = (connections.fetch_add(1, Ordering::Relaxed) == 0, words.clone());
        async move {
            if first && read_until(&mut stream, b"\r\n\r\n").await.is_some() {
                let _said = stream.write_all(words.as_bytes()).await;
                let mut asked_again = Vec::new();
                let _ended = stream.read_to_end(&mut asked_again).await;
                assert!(asked_again.is_empty(), "nothing more is asked on such a connection");
                return;
            }
            while read_until(&mut stream, b"\r\n\r\n").await.is_some() {
                let _said = stream.write_all(FRESH).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_answer_with_two_readings_is_a_502_and_the_last_on_its_connection() {
    let table = [
        (
            "a length and a coding",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: 5\r\n\r\nhello"),
        ("a list of lengths", "HTTP/1.1 200 OK\r\ncontent-length: 0, 5\r\n\r\nhello"),
        ("a signed length", "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello"),
        ("a folded length", "HTTP/1.1 200 OK\r\ncontent-length:\r\n 5\r\n\r\nhello"),
        ("a length with a space", "HTTP/1.1 200 OK\r\ncontent-length : 5\r\n\r\nhello"),
        ("bare line feeds", "HTTP/1.1 200 OK\ncontent-length: 5\n\nhello"),
        ("a bare line feed in a value", "HTTP/1.1 200 OK\r\nx: a\ncontent-length: 5\r\n\r\nhello"),
        ("a bare carriage return", "HTTP/1.1 200 OK\r\nx: a\rcontent-length: 5\r\n\r\nhello"),
        ("another coding", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        (
            "a coding twice",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("a coding that is none", "HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\nhello"),
        ("a coding in HTTP/1.0", "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("an empty line first", "\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
        ("another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ];
    for (name, words) in table {
        let backend = tricky(format!("{words}{SMUGGLED}")).await;
        let gateway = running(open(to(backend.upstream()).retries(0))).await;
        let mut client = gateway.client().await;
        let answer = in_time(name, client.get("/", &[])).await;
        assert_eq!(answer.status, 502, "{name}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("hello"), "{name}");
        assert_eq!(in_time(name, client.get("/", &[])).await.body, "fresh", "{name}");
    }
}

#[tokio::test]
async fn what_stands_behind_an_answer_is_nobodys_answer() {
    let table = [
        ("GET", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello"),
        ("GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("GET", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ""),
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 42\r\n\r\n", ""),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", ""),
        ("GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 42\r\n\r\n", ""),
    ];
    for (method, words, body) in table {
        let backend = tricky(format!("{words}{SMUGGLED}")).await;
        let gateway = running(open(to(backend.upstream()))).await;
        let mut client = gateway.client().await;
        let answer = in_time(words, client.ask(method, "/", &[], "")).await;
        assert!(answer.status != 502 && answer.body == body, "{words}: {answer:?}");
        assert_eq!(in_time(words, client.get("/", &[])).await.body, "fresh", "{words}");
    }
}

#[tokio::test]
async fn what_an_upstream_says_unasked_is_nobodys_answer() {
    let (say, said) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (saying, has_said) = (Arc::clone(&say), Arc::clone(&said));
    let connections = Arc::new(AtomicUsize::new(0));
    let backend = RawBackend::start(move |mut stream| {
        let (saying, has_said) = (Arc::clone(&saying), Arc::clone(&has_said));
        let first = connections.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            while read_until(&mut stream, b"\r\n\r\n").await.is_some() {
                let _said = stream.write_all(FRESH).await;
                if first {
                    saying.notified().await;
                    let _said = stream.write_all(SMUGGLED.as_bytes()).await;
                    has_said.notify_one();
                }
            }
        }
    })
    .await;
    let gateway = running(open(to(backend.upstream()))).await;
    let mut client = gateway.client().await;
    assert_eq!(client.get("/", &[]).await.body, "fresh");
    say.notify_one();
    in_time("the upstream to speak", said.notified()).await;
    for _ in 0..3 {
        assert_eq!(in_time("an answer", client.get("/", &[])).await.body, "fresh");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_passed_off_as_whole() {
    let table: [&'static [u8]; 5] = [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello world\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nbad trailer\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello",
    ];
    for words in table {
        let backend = RawBackend::saying(words).await;
        let gateway = running(open(to(backend.upstream()))).await;
        let answer = exchange(gateway.address, b"GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
        // The part that had arrived may have been forwarded, but never an end.
        let ended =
            answer.contains("0\r\n\r\n") || answer.to_ascii_lowercase().contains("content-length: 5\r\n");
        let text = String::from_utf8_lossy(words);
        assert!(!ended && (answer.is_empty() || answer.starts_with("HTTP/1.1 200")), "{text}: {answer}");
    }
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
    let backend = RawBackend::saying(b"HTTP/1.1 200 OK\r\n\r\nall that there is").await;
    let gateway = running(open(to(backend.upstream()))).await;
    let mut client = gateway.client().await;
    for _ in 0..2 {
        assert_eq!(client.get("/", &[]).await.body, "all that there is");
    }
}

#[tokio::test]
async fn interim_answers_are_not_the_answer() {
    let words =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let backend = RawBackend::saying(words).await;
    let gateway = running(open(to(backend.upstream()))).await;
    let answer = gateway.get("/", &[]).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body[..], answer.header("link")),
        (200, b"ok".as_slice(), None)
    );
}

#[tokio::test]
async fn a_connection_that_the_upstream_has_closed_is_not_used_again() {
    let backend = RawBackend::start(|mut stream| async move {
        if read_until(&mut stream, b"some body").await.is_some() {
            let _said = stream.write_all(FRESH).await;
        }
    })
    .await;
    let gateway = running(open(to(backend.upstream()).retries(0))).await;
    let mut client = gateway.client().await;
    for _ in 0..10 {
        let answer = in_time("an answer", client.ask("POST", "/", &[], "some body")).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, b"fresh".as_slice()));
    }
}

#[tokio::test]
async fn a_client_that_sends_everything_before_it_reads_is_served() {
    const BYTES: usize = 16 * 1024 * 1024;
    let backend = RawBackend::start(|mut stream| async move {
        if read_until(&mut stream, b"\r\n\r\n").await.is_none() {
            return;
        }
        let (mut from, mut back) = stream.split();
        let mut body = vec![0; BYTES];
        let taking = from.read_exact(&mut body);
        let answering = async {
            back.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n").as_bytes()).await?;
            back.write_all(&vec![b'y'; BYTES]).await
        };
        let _both = tokio::join!(taking, answering);
    })
    .await;
    let gateway = running(open(to(backend.upstream()).max_body(BYTES as u64))).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let header = format!("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: {BYTES}\r\n\r\n");
    in_time("the upload", async {
        client.write_all(header.as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; BYTES]).await.unwrap();
    })
    .await;
    let answer = in_time("the header", read_until(&mut client, b"\r\n\r\n")).await.expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    let mut body = vec![0; BYTES];
    in_time("the body", client.read_exact(&mut body)).await.unwrap();
    assert!(body.iter().all(|&byte| byte == b'y'));
}

#[tokio::test]
async fn trailers_of_a_request_go_through_where_they_were_announced() {
    let (requests, mut arrived) = mpsc::unbounded_channel();
    let backend = RawBackend::start(move |mut stream| {
        let requests = requests.clone();
        async move {
            let head = read_until(&mut stream, b"\r\n\r\n").await.unwrap_or_default();
            let body = read_until(&mut stream, b"\r\n\r\n").await.unwrap_or_default();
            let _sent = requests.send(String::from_utf8([head, body].concat()).expect("text"));
            let _said = stream.write_all(FRESH).await;
        }
    })
    .await;
    let gateway = running(open(to(backend.upstream()))).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let request = b"POST / HTTP/1.1\r\nHost: g\r\nTrailer: x-sum, content-length\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\nx-other: 1\r\n\r\n";
    client.write_all(request).await.unwrap();
    let seen = in_time("the request", arrived.recv()).await.expect("a request");
    assert!(seen.contains("transfer-encoding: chunked") && !seen.contains("content-length:"), "{seen}");
    assert!(seen.ends_with("2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n"), "{seen}");
}

/// Sends this text for its first request, and the rest only when the connection is used again. Responds correctly on
/// all others.
async fn late(words: &'static str) -> RawBackend {
    let connections = Arc::new(AtomicUsize::new(0));
    RawBackend::start(move |mut stream| {
        let first = connections.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if first && read_until(&mut stream, b"\r\n\r\n").await.is_some() {
                let _said = stream.write_all(words.as_bytes()).await;
                if read_until(&mut stream, b"\r\n\r\n").await.is_some() {
                    let _late = stream.write_all(SMUGGLED.as_bytes()).await;
                }
            }
            while read_until(&mut stream, b"\r\n\r\n").await.is_some() {
                let _said = stream.write_all(FRESH).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_body_that_comes_late_where_none_should_is_not_the_next_answer() {
    for (method, words) in [
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 45\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 45\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n"),
        ("DELETE", "HTTP/1.1 204 No Content\r\ncontent-length: 45\r\n\r\n"),
    ] {
        let backend = late(words).await;
        let gateway = running(open(to(backend.upstream()))).await;
        let mut client = gateway.client().await;
        let first = in_time("the first answer", client.ask(method, "/", &[], "")).await;
        assert!(first.status.as_u16() < 400, "{method} {words}");
        let next = in_time("the next answer", client.get("/", &[])).await;
        assert_eq!(next.body, "fresh", "{method} {words}");
    }
}

#[tokio::test]
async fn connections_that_an_upstream_closed_while_they_waited_cost_no_request() {
    const MANY: usize = 150;
    let (asked, restart) = (Arc::new(tokio::sync::Barrier::new(MANY)), Arc::new(Notify::new()));
    let backend = {
        let (asked, restart) = (Arc::clone(&asked), Arc::clone(&restart));
        RawBackend::start(move |mut stream| {
            let (asked, restart) = (Arc::clone(&asked), Arc::clone(&restart));
            async move {
                let header = read_until(&mut stream, b"\r\n\r\n").await.unwrap_or_default();
                if header.starts_with(b"POST") {
                    drop(read_until(&mut stream, b"hello").await);
                    drop(stream.write_all(FRESH).await);
                    return;
                }
                asked.wait().await;
                let restarted = restart.notified();
                drop(stream.write_all(FRESH).await);
                restarted.await;
            }
        })
        .await
    };
    let gateway = running(open(to(backend.upstream()).retries(0))).await;
    let gets = (0..MANY).map(|_| async { gateway.get("/", &[]).await.status.as_u16() });
    let statuses = in_time("all answers", futures_util::future::join_all(gets)).await;
    assert!(statuses.iter().all(|&status| status == 200));
    restart.notify_waiters();
    let mut client = gateway.client().await;
    for _ in 0..6 {
        assert_eq!(in_time("an answer", client.ask("POST", "/", &[], "hello")).await.status, 200);
    }
}
