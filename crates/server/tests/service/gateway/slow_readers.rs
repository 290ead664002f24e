//! Clients that ask for much and take nothing: what they cost the process.

use http::Request;
use tokio::net::TcpStream;

use super::serve;

const CONNECTIONS: usize = 10;
const STREAMS: usize = 190;
const ANSWER: usize = 120 * 1024;

/// An upstream whose answers are large.
async fn large() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let address = listener.local_addr().expect("it is bound");
    let answer = || async { vec![b'x'; ANSWER] };
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    address
}

/// Asks on every stream of a connection whose streams have room for this many bytes, and takes nothing. Resolves once
/// the gateway has ended all of the streams, or the connection.
async fn leave_unread(address: String, window: u32, path: &'static str) {
    let stream = TcpStream::connect(&address).await.expect("it listens");
    let mut settings = h2::client::Builder::new();
    settings.initial_window_size(window);
    let (mut client, connection) = settings.handshake::<_, bytes::Bytes>(stream).await.expect("HTTP/2");
    tokio::spawn(async move { drop(connection.await) });
    let mut answers = Vec::new();
    for _ in 0..STREAMS {
        client = client.ready().await.expect("a stream");
        let request = Request::get(format!("http://gateway.test{path}")).body(()).expect("a request");
        answers.push(client.send_request(request, true).expect("a stream").0);
    }
    for answer in answers {
        if let Ok(answer) = answer.await {
            let mut body = answer.into_body();
            // Not acknowledged, so that no more arrives.
            while let Some(Ok(_)) = body.data().await {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_not_taken_are_neither_held_nor_kept_for_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = large().await;
    let config = format!(
        "unmatched = \"pass\"\n[gateway]\nwrite_timeout = \"3s\"\n\
         [[routes]]\npath = \"/large\"\nupstream = \"http://{upstream}\"\n"
    );
    let spile = serve(folder.path(), &config);
    let before = spile.memory_mb();
    for (window, path) in [(1, "/large"), (0, "/large"), (0, "/nowhere")] {
        let all: Vec<_> = (0..CONNECTIONS)
            .map(|_| tokio::spawn(leave_unread(spile.address("gateway").to_owned(), window, path)))
            .collect();
        let ended = async {
            for one in all {
                one.await.expect("it ends");
            }
        };
        let most = spile.most_memory_mb_until(ended).await;
        let most = most.unwrap_or_else(|| panic!("streams with a window of {window} are kept"));
        // Held whole, these answers would be 228 MB.
        let grown = most.saturating_sub(before);
        assert!(grown < 100, "a window of {window} to {path} took {grown} MB");
    }
}
