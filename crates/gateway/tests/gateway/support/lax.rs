//! An upstream that parses requests as laxly as the worst servers: bare line feeds end lines, the last Content-Length
//! wins, and it overrides any Transfer-Encoding.

use std::sync::Arc;

use parking_lot::Mutex;
use spile_gateway::Upstream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::raw::RawBackend;

/// A lax upstream that records the header of each request that it believes it got.
pub(crate) struct LaxBackend {
    backend: RawBackend,
    seen: Arc<Mutex<Vec<String>>>,
}

impl LaxBackend {
    pub(crate) async fn start() -> Self {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&seen);
        let backend = RawBackend::start(move |stream| serve(stream, Arc::clone(&log))).await;
        Self { backend, seen }
    }

    pub(crate) fn upstream(&self) -> Upstream {
        self.backend.upstream()
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().clone()
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Vec<String>>>) {
    let mut buffer = Vec::new();
    loop {
        while let Some((header, length)) = next_request(&buffer) {
            buffer.drain(..length);
            seen.lock().push(header);
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// The header of the first request in the buffer, and its length together with the body.
fn next_request(buffer: &[u8]) -> Option<(String, usize)> {
    let text = String::from_utf8_lossy(buffer).into_owned();
    let ends = ["\r\n\r\n", "\n\n", "\n\r\n"];
    let end = ends.iter().filter_map(|end| text.find(end).map(|at| at + end.len())).min()?;
    let header = text[..end].to_ascii_lowercase();
    let lengths = header.lines().filter_map(|line| line.strip_prefix("content-length:"));
    let length = lengths.filter_map(|length| length.trim().parse::<usize>().ok()).next_back();
    let body = match length {
        Some(length) => length,
        None if header.contains("chunked") => text[end..].find("0\r\n\r\n")? + 5,
        None => 0,
    };
    (buffer.len() >= end + body).then(|| (text[..end].to_owned(), end + body))
}
