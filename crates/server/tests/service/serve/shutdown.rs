//! Stopping: what is under way is finished, and nothing new is taken on.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::Spile;

const BODY: &str = r#"{"ruleId":"default","identity":"late"}"#;

#[tokio::test]
async fn a_request_under_way_is_answered_and_new_connections_are_not_taken() {
    let spile = Spile::start().await;
    let (http, admin) = (spile.http, spile.admin);
    let mut caller = TcpStream::connect(http).await.expect("the server listens");
    begin_request(&mut caller).await;

    let stopped = spile.stop();
    until_refused(http).await;
    let readiness = ask_readiness(admin).await;
    caller.write_all(BODY.as_bytes()).await.expect("the connection is still open");

    let mut answer = String::new();
    caller.read_to_string(&mut answer).await.expect("the answer arrives whole");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(readiness.starts_with("HTTP/1.1 503"), "{readiness}");
    stopped.await.expect("the server ends by itself");
}

/// Sends a header and waits until the server asks for the body: from then on the request is under way.
async fn begin_request(caller: &mut TcpStream) {
    let header = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\
         content-length: {}\r\n\r\n",
        BODY.len()
    );
    caller.write_all(header.as_bytes()).await.expect("the server reads");
    let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    caller.read_exact(&mut go_on).await.expect("the server asks for the body");
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
}

/// Connects until nobody listens any more.
async fn until_refused(address: std::net::SocketAddr) {
    loop {
        match TcpStream::connect(address).await {
            Err(why) if why.kind() == ErrorKind::ConnectionRefused => return,
            _ => tokio::task::yield_now().await,
        }
    }
}

async fn ask_readiness(admin: std::net::SocketAddr) -> String {
    let mut operator = TcpStream::connect(admin).await.expect("admin stays while callers are served");
    let request = "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    operator.write_all(request.as_bytes()).await.expect("admin reads");
    let mut answer = String::new();
    operator.read_to_string(&mut answer).await.expect("admin answers");
    answer
}
