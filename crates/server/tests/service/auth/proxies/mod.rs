//! Forward-auth behind real proxies, with the settings that the guide shows.

mod apache;
mod caddy;
mod envoy;
mod haproxy;
mod nginx;
mod promises;
mod traefik;
mod varnish;

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use spile_testkit::wait;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use crate::support::Answer;

/// The port of every proxy here, each on an address of its own. Few programs listen on it on all addresses.
const PORT: u16 = 28_765;

/// What a proxy's settings depend on.
pub(crate) struct Site {
    /// Where the proxy listens.
    pub(crate) front: SocketAddr,
    /// Where the proxy asks.
    pub(crate) spile: SocketAddr,
    /// Where requests go that may pass.
    app: SocketAddr,
    /// For the proxy's own files.
    pub(crate) folder: TempDir,
    /// Holds the address of `front`: other tests that want it find it taken.
    _held: UdpSocket,
}

/// A running proxy with an application behind it. It is stopped when dropped.
pub(crate) struct Proxy {
    process: Child,
    site: Site,
}

impl Site {
    /// A site whose proxy asks the Spile that listens there.
    pub(crate) async fn before(spile: SocketAddr) -> Self {
        let mut hosts = (1..=u16::MAX).map(|host| Ipv4Addr::from(0x7f4d_0000 + u32::from(host)));
        let (host, held) = hosts
            .find_map(|host| {
                let held = UdpSocket::bind((host, PORT)).ok()?;
                // The process of a proxy that was stopped may listen for a moment longer.
                std::net::TcpListener::bind((host, PORT)).ok().map(|_| (host, held))
            })
            .expect("an address of 127.77.0.0/16 is free");
        let folder = tempfile::tempdir().expect("a folder");
        Self { front: (host, PORT).into(), spile, app: app("").await, folder, _held: held }
    }

    /// The same before an application that answers with this header field.
    pub(crate) async fn with_field(self, field: &'static str) -> Self {
        Self { app: app(field).await, ..self }
    }

    /// The guide's settings with this site's addresses in place of the guide's.
    pub(crate) fn filled(&self, settings: &str) -> String {
        let in_yaml =
            |address: SocketAddr| format!("address: {}, port_value: {}", address.ip(), address.port());
        settings
            .replace("0.0.0.0:8000", &self.front.to_string())
            .replace("127.0.0.1:8080", &self.spile.to_string())
            .replace("127.0.0.1:3000", &self.app.to_string())
            .replace("address: 0.0.0.0, port_value: 8000", &in_yaml(self.front))
            .replace("address: 127.0.0.1, port_value: 8080", &in_yaml(self.spile))
            .replace("address: 127.0.0.1, port_value: 8083", &in_yaml(self.spile))
            .replace("address: 127.0.0.1, port_value: 3000", &in_yaml(self.app))
    }

    /// Writes a file into the site's folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("the folder is ours");
        path
    }
}

impl Proxy {
    /// Starts the program, and waits until a request passes through it.
    pub(crate) async fn start(site: Site, mut program: Command) -> Self {
        let log = site.folder.path().join("log");
        let file = File::create(&log).expect("the folder is ours");
        let also = file.try_clone().expect("a file can be opened twice");
        program.stdin(Stdio::null()).stdout(file).stderr(also);
        let process = program
            .spawn()
            .unwrap_or_else(|why| panic!("{program:?}: {why}; scripts/install-test-deps installs it"));
        let mut proxy = Self { process, site };
        // Spile answers meanwhile, on the thread of the test.
        let waited = tokio::task::spawn_blocking(move || {
            wait::until_true("the proxy lets a request pass", || {
                if let Ok(Some(ended)) = proxy.process.try_wait() {
                    panic!("{program:?}: {ended}\n{}", std::fs::read_to_string(&log).unwrap_or_default());
                }
                lets_pass(proxy.site.front).unwrap_or(false)
            });
            proxy
        });
        waited.await.expect("the proxy starts")
    }

    /// What the client of that address gets for a request that begins with this: `POST /login`.
    pub(crate) async fn ask(&self, client: &str, begins: &[u8], headers: &[(&str, &[u8])]) -> Answer {
        let mut request = begins.to_vec();
        request.extend(b" HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n");
        if headers.iter().all(|(name, _)| *name != "Host") {
            request.extend(b"host: shop\r\n");
        }
        for (name, value) in headers {
            request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        request.extend(b"\r\n");

        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind(format!("{client}:0").parse().expect("an address"))
            .expect("all of 127/8 is this machine");
        let mut caller = socket.connect(self.site.front).await.expect("the proxy listens");
        caller.write_all(&request).await.expect("the proxy reads");
        let mut answer = Vec::new();
        let read = tokio::time::timeout(wait::PATIENCE, caller.read_to_end(&mut answer)).await;
        // A proxy that refuses a request unread may reset the connection after its answer.
        let _end_or_reset = read.expect("the proxy answers in time");
        parsed(&answer)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Both fail if the proxy has ended already, which is what is wanted.
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// A program that `scripts/install-test-deps` unpacks.
pub(crate) fn unpacked(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache").join(name).join(name))
}

/// A program that Debian keeps in a folder that an ordinary user's PATH may lack.
fn system(name: &str) -> Command {
    let path = Path::new("/usr/sbin").join(name);
    if path.exists() { Command::new(path) } else { Command::new(name) }
}

/// The Envoy of the tests with these settings.
pub(crate) fn envoy(site: &Site, settings: &str) -> Command {
    let mut envoy = unpacked("envoy");
    envoy
        .arg("--config-path")
        .arg(site.write("envoy.yaml", &site.filled(settings)))
        // Two Envoys on one machine share memory unless told otherwise.
        .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]);
    envoy
}

/// The blocks of code of this language in a text of the guide, whatever mark they have.
pub(crate) fn blocks<'g>(text: &'g str, language: &str) -> Vec<&'g str> {
    let opens = format!("```{language}");
    text.split(opens.as_str())
        .skip(1)
        .filter_map(|rest| rest.split_once('\n'))
        .filter_map(|(_, rest)| rest.split_once("```"))
        .map(|(block, _)| block)
        .collect()
}

/// An application that answers every request with a page, and with this header field if it is not empty.
async fn app(field: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n")
                    && stream.read_buf(&mut head).await.is_ok_and(|read| read > 0)
                {}
                let end = if field.is_empty() { "\r\n" } else { "\r\n\r\n" };
                let page = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 8\r\n{field}{end}the page"
                );
                // A proxy that has hung up has had enough.
                let _written = stream.write_all(page.as_bytes()).await;
            });
        }
    });
    address
}

fn lets_pass(front: SocketAddr) -> io::Result<bool> {
    let mut caller = TcpStream::connect(front)?;
    caller.set_read_timeout(Some(wait::PATIENCE))?;
    caller.write_all(b"GET /ready HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    caller.read_to_end(&mut answer)?;
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}

fn parsed(answer: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse::<StatusCode>().ok());
    let headers: HeaderMap = lines
        .filter_map(|line| line.split_once(": "))
        .filter_map(|(name, value)| {
            Some((name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?))
        })
        .collect();
    Answer { status: status.unwrap_or_else(|| panic!("no status: {text:?}")), headers, text: body.to_owned() }
}
