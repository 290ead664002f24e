//! Reads the snapshot from the admin listener of a server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::watch::Snapshot;

const PATIENCE: Duration = Duration::from_secs(2);
/// More than any snapshot has, since its lists are bounded.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// The snapshot, or why it could not be read. Each call is one HTTP/1.0 request on a connection of its own.
pub(super) fn fetch(admin: SocketAddr, token: Option<&str>) -> Result<Snapshot, String> {
    let answer = request(admin, token).map_err(|why| why.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer is not HTTP")?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status == "401" {
        return Err("the server wants its admin token: set SPILE_ADMIN_TOKEN".to_owned());
    }
    if status != "200" {
        return Err(format!("the server answers {status}; is this the admin listener?"));
    }
    serde_json::from_str(body).map_err(|why| format!("the answer cannot be read: {why}"))
}

fn request(admin: SocketAddr, token: Option<&str>) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the response is not chunked, and the connection closes after it.
    write!(stream, "GET /dashboard/snapshot HTTP/1.0\r\nHost: {admin}\r\n")?;
    // A token with a line break would inject headers. Without it the server answers 401, as for a wrong token.
    if let Some(token) = token.filter(|token| !token.contains(['\r', '\n'])) {
        write!(stream, "Authorization: Bearer {token}\r\n")?;
    }
    stream.write_all(b"\r\n")?;
    let mut answer = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut answer)?;
    Ok(answer)
}
